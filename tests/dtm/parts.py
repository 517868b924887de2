"""The parts of a run. Each prints what it finds and returns its faults, as lines."""
import json
import os
import re
import statistics
import subprocess
import typing
import urllib.request

import machine
import stores
from machine import find

URL = "http://127.0.0.1:8083/api/busi_bench"
# dtm's tests and its flash sale know no other port of the store.
FIXED_PORT = 6379
# Which store a ratio is taken to first; that one must be good.
PEERS = {"memory": ("redis",), "durable": ("redis-always", "redis")}


class Load(typing.NamedTuple):
    """What ab has seen."""
    rate: float
    # Without a reply, or with one of another length than the first.
    failed: int
    # Of these, the ones of another length.
    lengths: int
    # Replies that say that it did not succeed.
    refused: int


def load(url, requests, clients):
    """Has ab send so many requests."""
    output = machine.run(find("ab"), "-q", "-n", requests, "-c", clients, url)

    def number(pattern):
        found = re.search(pattern, output, re.M)
        return float(found[1]) if found else 0

    missing = requests - number(r"^Complete requests:\s+(\d+)")
    failed = int(number(r"^Failed requests:\s+(\d+)") + missing)
    rate = number(r"^Requests per second:\s+([\d.]+)")
    return Load(rate, failed, int(number(r"Length: (\d+)")), int(number(r"^Non-2xx responses:\s+(\d+)")))


def bench(dtm, options):
    """Processor time of the store a transaction, in turns."""
    faults, taken = [], {kind: [] for kind in options.stores}
    for at in range(options.rounds):
        # Each store is the first of a round now and then.
        turn = at % len(options.stores)
        for kind in options.stores[turn:] + options.stores[:turn]:
            with stores.store(kind, options, options.port) as store, stores.dtm_bench(dtm, store):
                before = store.cpu_seconds()
                seen = load(f"{URL}/benchEmptyUrl", options.requests, 10)
                micros = (store.cpu_seconds() - before) * 1e6 / options.requests
                store.must_live()
            taken[kind].append(micros)
            print(f"   round {at + 1} {kind:12} {micros:6.1f} us/transaction {seen.rate:7.0f} transactions/s"
                  f" {seen.failed:3} failed", flush=True)
            if seen.failed or seen.refused:
                faults.append(f"bench on {kind}: {seen.failed} requests failed, {seen.refused} were refused;"
                              f" see {options.scratch}/dtm.log")
    medians = {kind: statistics.median(all_taken) for kind, all_taken in taken.items()}
    for kind, median in medians.items():
        print(f"   median  {kind:12} {median:6.1f} us/transaction"
              f" ({min(taken[kind]):.1f}-{max(taken[kind]):.1f}, {options.rounds} rounds)")
    return faults + ratios(medians, options.most)


def ratios(medians, most):
    """Prints each edition's part of what the real servers take; its first peer's must be good."""
    faults = []
    for kind, peers in PEERS.items():
        compared = [peer for peer in peers if kind in medians and peer in medians]
        for at, peer in enumerate(compared):
            ratio = medians[kind] / medians[peer]
            counts = at == 0 and peer == peers[0]
            print(f"   ratio   {kind} / {peer}: {ratio:.2f}" + (f" (at most {most})" if counts else ""))
            if counts and ratio > most:
                faults.append(f"bench: {kind} takes {ratio:.2f} of {peer}'s processor time")
    return faults


def suite(dtm, options):
    """dtm's own tests, MongoDB's left out.

    Some look for a state that dtm's other threads are just changing, and fail now and then with any store: "submitted"
    was expected, and it has succeeded already. One thread of Go makes that rare, and a store has some tries.
    """
    program = dtm.suite()
    faults = []
    for kind in options.stores:
        for left in reversed(range(options.tries)):
            stores.must_be_free(FIXED_PORT, 8081, 58081, 36789, 36790, 36791)
            with stores.store(kind, options, FIXED_PORT) as store, stores.mariadb(options.scratch):
                counts, failed = tests(dtm, program, options, kind)
                store.must_live()
            print(f"   {kind:12} {counts['pass']} pass, {counts['fail']} fail, {counts['skip']} skipped,"
                  f" MongoDB's left out{'; failed: ' if failed else ''}{', '.join(failed)}", flush=True)
            if counts["pass"] and not failed:
                break
            if not left:
                faults.append(f"suite on {kind}: {', '.join(failed) or 'nothing was run'};"
                              f" see {options.scratch}/suite-{kind}.log")
    return faults


def tests(dtm, program, options, kind):
    """Runs the tests once: how many ended how, and what failed."""
    log = options.scratch / f"suite-{kind}.log"
    environment = dict(os.environ, TEST_STORE="redis", SKIP_MONGO="1", GOMAXPROCS="1")
    words = [program, "-test.v=test2json", "-test.skip=Mongo", f"-test.run={options.only}", "-test.timeout=20m"]
    # The output of a test that is being served on other threads mixes with its lines; this tool knows which is which.
    with open(log, "w") as output:
        ran = subprocess.run([machine.go(), "tool", "test2json", *map(str, words)], cwd=dtm.source() / "test",
                             env=environment, stdout=output, stderr=subprocess.STDOUT)
    counts, failed = {"pass": 0, "fail": 0, "skip": 0}, []
    for line in open(log, errors="replace"):
        try:
            event = json.loads(line)
        except ValueError:
            continue
        name, action = event.get("Test"), event.get("Action")
        if name and "/" not in name and action in counts:
            counts[action] += 1
            failed += [name] if action == "fail" else []
    if ran.returncode and not failed:
        failed.append(f"the tests ended with status {ran.returncode}; see {log}")
    return counts, failed


def flash_sale(dtm, options):
    """More buyers than stock: each sale is a message with a barrier that takes one from the stock."""
    faults = []
    for kind in options.stores:
        stores.must_be_free(FIXED_PORT)
        with stores.store(kind, options, FIXED_PORT) as store, stores.dtm_bench(dtm, store):
            urllib.request.urlopen(f"{URL}/benchFlashSalesReset").close()
            # The reset leaves nothing to sell.
            store.ask("SET", "{a}--stock-1", options.stock)
            before = store.cpu_seconds()
            seen = load(f"{URL}/benchFlashSales", options.buyers, 20)
            micros = (store.cpu_seconds() - before) * 1e6 / options.buyers
            left = int(store.ask("GET", "{a}--stock-1"))
            store.must_live()
        # Refusals are of another length than sales.
        failed = seen.failed - seen.lengths
        sold = options.buyers - failed - seen.refused
        wanted = min(options.stock, options.buyers)
        print(f"   {kind:12} stock {options.stock}, {options.buyers} buyers: {sold} sold, {seen.refused} refused,"
              f" {failed} failed, {left} left; {seen.rate:.0f} requests/s, {micros:.0f} us each", flush=True)
        if failed or sold != wanted or left != options.stock - wanted:
            faults.append(f"flash-sale on {kind}: {sold} sold of {options.stock}, {left} left, {failed} failed")
    return faults


BY_NAME = {"bench": bench, "suite": suite, "flash-sale": flash_sale}
