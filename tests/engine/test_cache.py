from concurrent.futures import ThreadPoolExecutor

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from protodask.engine import Block
from protodask.engine.cache import BlockCache

KEYS = ("a", "b", "c")
NUMBERS = range(4)


def make_block(number: int, size: int) -> Block:
    return Block(number, 0, {"x": np.zeros(size, dtype=np.uint8)})


def held(cache: BlockCache) -> dict[tuple[str, int], int]:
    """Bytes of each block the cache can return."""
    found = {(key, number): cache.get(key, number) for key in KEYS for number in NUMBERS}
    return {entry: block.nbytes for entry, block in found.items() if block is not None}


offers = st.tuples(
    st.sampled_from(KEYS),
    st.sampled_from(NUMBERS),
    st.integers(0, 60),
    st.frozensets(st.sampled_from(KEYS)),
    st.none() | st.frozensets(st.sampled_from(NUMBERS)),
)


@given(st.integers(0, 100), st.lists(st.one_of(offers, st.sampled_from(KEYS)), max_size=40))
def test_cache__keeps_its_books_and_never_exceeds_the_budget(
    budget: int, steps: list[tuple[str, int, int, frozenset[str], frozenset[int] | None] | str]
) -> None:
    cache = BlockCache(budget)
    for step in steps:
        before = held(cache)
        if isinstance(step, str):
            cache.drop(step)
            assert held(cache) == {entry: size for entry, size in before.items() if entry[0] != step}
        else:
            key, number, size, active, own = step
            kept = cache.offer(key, make_block(number, size), active, own)
            after = held(cache)
            assert kept == ((key, number) in after)
            read = {entry for entry in before if entry[0] in active and (own is None or entry[1] in own)}
            # What a pass in progress reads is never pushed out, and nothing comes in but what was offered.
            assert read <= after.keys()
            assert after.keys() <= before.keys() | {(key, number)}
            room = budget - sum(before[entry] for entry in read)
            assert kept == ((key, number) in before or size <= room)
        assert cache.held_bytes == sum(held(cache).values()) <= budget
        assert len(cache) == len(held(cache))


def test_cache__full_turns_newcomers_away_so_that_repeated_passes_hit() -> None:
    cache, active = BlockCache(3 * 10), frozenset({"a"})
    hits = []
    for _ in range(3):
        hits.append(sum(cache.get("a", number) is not None for number in range(8)))
        for number in range(8):
            cache.offer("a", make_block(number, 10), active)
    assert hits == [0, 3, 3]


def test_cache__evicts_sources_that_the_pass_does_not_read() -> None:
    cache = BlockCache(30)
    for number in NUMBERS:
        cache.offer("a", make_block(number, 10), {"a"})
    assert cache.offer("b", make_block(0, 20), {"b"})
    assert sorted(held(cache)) == [("a", 2), ("b", 0)]


def test_cache__returns_the_very_block() -> None:
    cache, block = BlockCache(10), make_block(2, 10)
    cache.offer("a", block, ())
    assert cache.get("a", 2) is block
    assert cache.get("a", 1) is None
    assert cache.get("b", 2) is None
    cache.clear()
    assert cache.get("a", 2) is None
    assert cache.held_bytes == 0


def test_cache__is_safe_for_threads() -> None:
    cache = BlockCache(100)

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(300):
            key, number = KEYS[rng.integers(3)], int(rng.integers(4))
            cache.offer(key, make_block(number, int(rng.integers(1, 50))), {KEYS[rng.integers(3)]})
            cache.get(key, number)
            if rng.random() < 0.05:
                cache.drop(key)
            assert 0 <= cache.held_bytes <= 100

    with ThreadPoolExecutor(4) as pool:
        for finished in [pool.submit(work, seed) for seed in range(4)]:
            finished.result()
    assert cache.held_bytes == sum(held(cache).values())
