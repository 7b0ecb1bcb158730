"""OPUS over a real HTTP server on the loopback; hub files by their language pair."""

import pytest
from opus_server import opus, write_zip  # noqa: F401 (a fixture)

from msdc.distill.data import download as remote
from msdc.distill.data.sources import open_corpus
from msdc.distill.recipe import Corpus
from msdc.errors import InputError


def test_opus_pair_is_fetched_once_and_read(opus):  # noqa: F811
    write_zip(
        opus / "de-en.txt.zip", {"Talks.de-en.en": "Yes.\nNo.\n", "Talks.de-en.de": "Ja.\nNein.\n", "README": "x"}
    )
    corpus = Corpus(opus="Talks/v1", languages=["de"])
    for _ in range(2):
        (source,) = open_corpus(corpus)
        assert [(r.source, r.target, r.language) for r in source.read()] == [
            ("Yes.", "Ja.", "de"),
            ("No.", "Nein.", "de"),
        ]
        (opus / "de-en.txt.zip").unlink(missing_ok=True)


def test_opus_names_that_are_not_there_or_not_archives(opus):  # noqa: F811
    with pytest.raises(InputError, match="cannot be fetched"):
        open_corpus(Corpus(opus="Talks/v9", languages=["de"]))
    (opus / "en-fr.txt.zip").write_bytes(b"not a zip")
    with pytest.raises(InputError, match="not a zip archive"):
        open_corpus(Corpus(opus="Talks/v1", languages=["fr"]))
    write_zip(opus / "en-nl.txt.zip", {"../evil.en": "x\n", "evil.nl": "x\n"})
    with pytest.raises(InputError, match="does not hold one"):
        open_corpus(Corpus(opus="Talks/v1", languages=["nl"]))
    with pytest.raises(InputError, match="expected NAME/VERSION"):
        open_corpus(Corpus(opus="Talks", languages=["nl"]))


def test_an_opus_pair_that_is_not_there_is_skipped_with_a_warning(opus, capsys):  # noqa: F811
    write_zip(opus / "de-en.txt.zip", {"Talks.de-en.en": "Yes.\n", "Talks.de-en.de": "Ja.\n"})
    (source,) = open_corpus(Corpus(opus="Talks/v1", languages=["de", "tr"]))
    assert source.language == "de"
    assert "warning: OPUS corpus Talks/v1 en-tr: cannot be fetched" in capsys.readouterr().err


def test_an_opus_server_that_does_not_answer_is_an_error(opus, monkeypatch):  # noqa: F811
    write_zip(opus / "de-en.txt.zip", {"Talks.de-en.en": "Yes.\n", "Talks.de-en.de": "Ja.\n"})
    open_corpus(Corpus(opus="Talks/v1", languages=["de"]))
    monkeypatch.setattr(remote, "OPUS_URL", "http://127.0.0.1:9/{name}/{version}/{pair}")
    with pytest.raises(InputError, match="en-tr: cannot be fetched"):
        open_corpus(Corpus(opus="Talks/v1", languages=["de", "tr"]))


def test_hub_files_keep_their_language(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for code in ("de", "fr"):
        (tmp_path / "set" / f"en-{code}").mkdir(parents=True)
        (tmp_path / "set" / f"en-{code}" / "train-00000.tsv").write_text(f"Yes.\t{code}\n")
    corpus = Corpus(hub="owner/parallel", languages=["fr"])
    (path,) = remote.link_by_language(tmp_path / "set", corpus)
    assert path.name == "en-fr.train-00000.tsv" and path.read_text() == "Yes.\tfr\n"
    # Files that are not named by the pair are left to the `datasets` library.
    assert remote.link_by_language(tmp_path / "set", Corpus(hub="owner/parallel", languages=["tr"])) == []
