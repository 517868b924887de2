"""A short walk through redis-py's cluster client against a node on a port of this machine.

Usage: cluster.py PORT. Exit status 0 if everything came back as it should.
"""
import sys

from redis.cluster import RedisCluster

PORT = int(sys.argv[1])


def walk(protocol, reads_replicas):
    client = RedisCluster(
        host="127.0.0.1", port=PORT, protocol=protocol, decode_responses=True, read_from_replicas=reads_replicas
    )
    assert client.ping(target_nodes=RedisCluster.ALL_NODES)
    for number in range(200):
        assert client.set(f"key:{number}", number) is True
    assert client.get("key:7") == "7" or reads_replicas
    assert client.mset_nonatomic({f"{{{number}}}x": number for number in range(20)})
    assert client.mget("{t}a", "{t}b") == [None, None]
    with client.pipeline() as pipe:
        for number in range(100):
            pipe.get(f"key:{number}")
        replies = pipe.execute()
        assert len(replies) == 100 and (reads_replicas or replies == [str(number) for number in range(100)])
    assert client.eval("return redis.call('SET', KEYS[1], ARGV[1])", 1, "{t}a", "1") == "OK"
    assert sorted(client.scan_iter("key:*"))[:1] == ["key:0"]
    assert client.cluster_info()["cluster_state"] == "ok"
    assert len(client.cluster_nodes()) == 4
    assert client.cluster_keyslot("foo") == 12182
    assert client.delete("key:1", "key:2", "key:3") == 3
    client.flushall(target_nodes=RedisCluster.PRIMARIES)


for speech in (2, 3):
    for replicas in (False, True):
        walk(speech, replicas)
