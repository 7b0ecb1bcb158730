"""An index after an update of its model: its words, its documents, and the way to the new model."""

import json
import os
import signal
import subprocess
import sys
import threading

import pytest
import tiny_models as tiny

import msdc
from msdc.errors import InputError, OtherModel
from msdc.search import index as indexes
from msdc.search.index import Index

TEXTS = [f"A cat sat on mat {number}. The dog ran to the house." for number in range(40)]


@pytest.fixture(scope="module")
def models():
    return [msdc.load_encoder(tiny.student_folder(seed)) for seed in (3, 4)]


@pytest.fixture
def path(tmp_path, models):
    path = tmp_path / "notes.sqlite"
    with Index(models[0], path) as index:
        index.add([{"id": f"n{number}", "text": text, "title": "Note"} for number, text in enumerate(TEXTS)])
    return path


def cosines(index):
    return {hit.id: hit.cosine for hit in index.search("A cat sat.", 100, mode="vectors", distinct=False).hits}


def test_an_index_of_another_model_is_intact(models, path):
    """It keeps its documents and words, and `rebuild` makes it one of the new model."""
    before = path.read_bytes()
    with pytest.raises(OtherModel, match=r"made with another tiny-student, not with this tiny-student-4; .*rebuild"):
        Index(models[1], path)
    assert path.read_bytes() == before
    with msdc.open_index(path, None) as index:
        assert index.ids() == [f"n{number}" for number in range(40)]
        assert (index.get("n7").text, index.get("n7").title, index.get("missing")) == (TEXTS[7], "Note", None)
        assert [hit.id for hit in index.search('"mat 7"', 1).hits] == ["n7"]  # "both" is by words here
        for use in (lambda: index.search("mat", mode="vectors"), lambda: index.add(["A text."]), index.rebuild):
            with pytest.raises(InputError, match=r"opened without a model|needs a model"):
                use()
        calls = []
        assert index.rebuild(models[1], lambda *numbers: calls.append(numbers)) == 40
        assert calls[-1] == (40, 40)
        index.add([{"id": "new", "text": TEXTS[0], "title": "Note"}])
        assert index.rebuild() == 0  # it is one of this model
    with Index(models[1]) as fresh, Index(models[1], path) as index:
        fresh.add([{"id": f"n{number}", "text": text, "title": "Note"} for number, text in enumerate(TEXTS)])
        index.remove(["new"])
        assert cosines(index) == cosines(fresh)
        assert not index._db.execute("SELECT 1 FROM sqlite_master WHERE name LIKE 'rebuil%'").fetchall()
    with pytest.raises(OtherModel):
        Index(models[0], path)


def test_a_killed_rebuild_goes_on_where_it_stopped(models, path, monkeypatch):
    program = (
        "import os, signal, sys; sys.path.insert(0, sys.argv[3])\n"
        "import msdc; from msdc.search import index as indexes; indexes.BLOCK = 5\n"
        "stop = lambda done, total: done < 30 or os.kill(os.getpid(), signal.SIGKILL)\n"
        "msdc.open_index(sys.argv[1], None).rebuild(msdc.load_encoder(sys.argv[2]), stop)\n"
    )
    words = [sys.executable, "-c", program, str(path), str(tiny.student_folder(4)), os.getcwd()]
    with Index(models[0], path) as reader:
        assert subprocess.run(words).returncode == -signal.SIGKILL
        assert len(cosines(reader)) == 40
    monkeypatch.setattr(indexes, "BLOCK", 5)
    with Index(models[0], path) as former:  # still one of the former model
        assert len(cosines(former)) == 40
        former.remove(["n0"])
        former.add([{"id": "late", "text": "A late cat."}])
    with msdc.open_index(path, models[0]) as index:
        # 25 were committed, of which n0 is gone.
        assert index.rebuild(models[1]) == 40 - 24
        assert cosines(index).keys() == {"late", *(f"n{number}" for number in range(1, 40))}


def test_a_rebuild_for_a_third_model_begins_anew(models, path, monkeypatch):
    monkeypatch.setattr(indexes, "BLOCK", 5)

    def stop(done, total):
        if done == 20:
            raise KeyboardInterrupt

    third = msdc.load_encoder(tiny.student_folder(5))
    with msdc.open_index(path, None) as index:
        with pytest.raises(KeyboardInterrupt):
            index.rebuild(models[1], stop)
        assert index.rebuild(third) == 40


def test_two_processes_rebuild_at_once(models, path, monkeypatch):
    """Each document is encoded into the index once, and both end with an index of the new model."""
    monkeypatch.setattr(indexes, "BLOCK", 3)
    counts, indexes_open = [], [msdc.open_index(path, None) for _ in range(2)]
    threads = [
        threading.Thread(target=lambda opened=opened: counts.append(opened.rebuild(models[1])))
        for opened in indexes_open
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(counts) == 2
    assert sum(counts) == 40
    first, second = map(cosines, indexes_open)
    assert first == second
    assert len(first) == 40
    for index in indexes_open:
        index.close()


def test_a_rebuild_that_another_process_takes_over_stops(models, path, monkeypatch):
    monkeypatch.setattr(indexes, "BLOCK", 5)
    third = msdc.load_encoder(tiny.student_folder(5))
    with msdc.open_index(path, None) as index, msdc.open_index(path, None) as other:

        def replace(done, total):
            with index._lock:
                index._db.execute("UPDATE facts SET value = ? WHERE name = 'rebuild'", (third.fingerprint(),))
                index._db.execute("DELETE FROM rebuilt")

        with pytest.raises(InputError, match="another process rebuilds it with another model"):
            index.rebuild(models[1], replace)
        assert other.rebuild(third) == 40


def test_the_facts_name_the_new_model(models, path):
    with msdc.open_index(path, None) as index:
        index.rebuild(models[1])
        facts = dict(index._db.execute("SELECT name, value FROM facts"))
    assert facts == {
        "format": "3", "model": models[1].fingerprint(), "name": "tiny-student-4", "source": models[1].source,
        "cosines": json.dumps(models[1].cosines()),
    }  # fmt: skip


def test_a_pointer_of_git_lfs_in_place_of_an_index_is_named(models, tmp_path):
    pointer = tmp_path / "notes.sqlite"
    pointer.write_text(f"version https://git-lfs.github.com/spec/v1\noid sha256:{'ab' * 32}\nsize 8192\n")
    before = pointer.read_bytes()
    for use in (lambda: Index(models[0], pointer), lambda: msdc.open_index(pointer, index=tmp_path / "new.sqlite")):
        with pytest.raises(InputError, match=r"pointer of Git LFS.*git lfs pull"):
            use()
    assert pointer.read_bytes() == before
