"""A short walk through redis-py against a server on a port of this machine.

Usage: smoke.py PORT [AUTHORITY CERTIFICATE KEY]. With files it speaks TLS. Exit status 0 if everything came back as it should.
"""
import sys

import redis

PORT, *FILES = sys.argv[1:]
TLS = dict(zip(("ssl_ca_certs", "ssl_certfile", "ssl_keyfile"), FILES), ssl=True) if FILES else {}


def walk(port, protocol):
    client = redis.Redis(host="127.0.0.1", port=port, protocol=protocol, **TLS, decode_responses=True)
    client.flushall()
    assert client.ping() is True
    assert client.set("k", "v") is True
    assert client.get("k") == "v"
    assert client.get("none") is None
    assert client.set("k", "w", nx=True) is None
    assert client.expire("k", 1000) is True
    assert 990 <= client.ttl("k") <= 1000
    assert client.persist("k") is True and client.ttl("k") == -1
    assert client.incrby("n", 5) == 5 and client.incrbyfloat("n", 0.5) == 5.5
    assert client.mset({"a": "1", "b": "2"}) is True
    assert client.mget("a", "b", "none") == ["1", "2", None]
    with client.pipeline(transaction=False) as pipe:
        for number in range(100):
            pipe.set(f"key:{number}", number)
        assert pipe.execute() == [True] * 100
    found = set(client.scan_iter(match="key:*", count=7))
    assert found == {f"key:{number}" for number in range(100)}, found
    assert client.delete("a", "b") == 2
    assert client.dbsize() == 102
    binary = redis.Redis(host="127.0.0.1", port=port, protocol=protocol, **TLS)
    value = bytes(range(256)) * 100
    binary.set("binary", value)
    assert binary.get("binary") == value
    try:
        client.execute_command("NOSUCHCOMMAND")
    except redis.ResponseError as error:
        assert "unknown command" in str(error)
    else:
        raise AssertionError("no error for an unknown command")
    other = redis.Redis(host="127.0.0.1", port=port, protocol=protocol, **TLS, db=1)
    assert other.get("k") is None


for protocol in (2, 3):
    walk(int(PORT), protocol)
