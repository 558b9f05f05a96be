"""The bench of starts: what its two scripts must print, they print."""

import pytest

from bench.benches.start import BARE, OURS, _ground
from bench.harness.stand import Stand


@pytest.mark.spark
@pytest.mark.slow
def test_both_systems_print_what_plain_polars_finds():
    with _ground() as ground:
        # Rows of 190 s, ten a second, of which 146 times ten in thirteen are kept: 3 + ... + 12.
        assert [str(19 * 7), str(146 * 10), str(146 * 75)] == ground.expected()
        for system in (OURS, BARE):
            started = ground.start(Stand(), system)
            assert 0 < started.first <= started.all


def test_a_wrong_line_is_no_run(tmp_path, monkeypatch):
    from bench.benches import start

    (tmp_path / "script.py").write_text("print('1 2 3')")
    monkeypatch.setitem(start.SCRIPTS, OURS, tmp_path / "script.py")

    with pytest.raises(RuntimeError, match="anabranch gave '1 2 3"):
        start.Ground(tmp_path, tmp_path).start(Stand(), OURS)


def test_a_word_on_standard_error_is_no_silent_run(tmp_path, monkeypatch):
    from bench.benches import start

    ground = start.Ground(tmp_path, tmp_path)
    script = f"import sys; print(*{ground.expected()}); print('hm', file=sys.stderr)"
    (tmp_path / "script.py").write_text(script)
    monkeypatch.setitem(start.SCRIPTS, OURS, tmp_path / "script.py")

    with pytest.raises(RuntimeError, match="is to be silent, and said:\nhm"):
        ground.start(Stand(), OURS)
