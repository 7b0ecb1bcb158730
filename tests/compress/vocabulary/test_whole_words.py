"""Vocabularies of whole words and word parts; SentencePiece's own normalizer is the oracle."""

import string
import unicodedata

import pytest
import sentencepiece

from msdc.compress.texts import quickstart_texts
from msdc.compress.vocabulary.spelling import marks_apart, read_character_map, spellings
from msdc.compress.vocabulary.tokens import read_proto
from msdc.compress.vocabulary.train import PHRASE, train_mixed_vocabulary, train_vocabulary
from msdc.encoders.folder import SHIPPED, locate_model, shipped_names
from msdc.errors import InputError
from msdc.export.golden import golden_texts
from msdc.text.tokenizer import FastTokenizer, PieceTokenizer, write_fast_copy

TEXTS = (
    "L'homme d'État (dit-il): «oui»!", "costs $21.59 or 3%...", "“ne” var? İstanbul'da", "السلام، عليكم؟",
    "cafe\u0301 ½ …", "a--b  c", "'", "snake_case x=y+1 <s>",
)  # fmt: skip


@pytest.fixture(scope="module")
def rules(tmp_path_factory):
    path = train_vocabulary(["a b c d e"] * 8, tmp_path_factory.mktemp("map") / "t.model", 16)
    processor = sentencepiece.SentencePieceProcessor(model_file=str(path))
    return processor, read_character_map(read_proto(path.read_bytes()).normalizer_spec.precompiled_charsmap)


@pytest.fixture(scope="module")
def texts():
    rows = quickstart_texts()
    return {"": rows[::2], "xx": rows[1::2]}


@pytest.fixture(scope="module")
def whole_word_tokenizer(texts, tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    return PieceTokenizer(train_mixed_vocabulary(texts, folder / "t.model", 2500, 1200, words=["zebra", "photograph"]))


def test_the_character_map_is_read_as_sentencepiece_applies_it(rules):
    processor, character_map = rules
    assert len(character_map) > 100_000
    for key in [*list(character_map)[::997], "A", "İ", "ﬁ", "½"]:
        if key in character_map and not character_map[key].isspace() and " " not in character_map[key]:
            assert processor.normalize(key).replace("▁", "") == character_map[key]
    cut = marks_apart(character_map)  # rules without marks stay
    same = [key for key in character_map if cut[key] == character_map[key]]
    assert len(same) > 0.9 * len(character_map)
    assert cut["A"] == "a"
    assert cut["!"] == " ! "


def test_marks_are_words_of_their_own(whole_word_tokenizer, rules):
    processor, _ = rules
    cut = whole_word_tokenizer.processor.normalize("L'homme d'État (dit-il): «oui»! $5.20…")
    assert " ".join(cut.split("▁")[1:]) == "l ' homme d ' état ( dit - il ) : « oui » ! $ 5 . 20 . . ."
    letters = "İzmir ve Straße cafe\u0301"
    assert whole_word_tokenizer.processor.normalize(letters) == processor.normalize(letters)
    for mark in "$@~€":  # those that the corpus lacks too
        assert whole_word_tokenizer.unk_id not in whole_word_tokenizer.encode([mark], 8)[0]


def test_given_and_frequent_words_are_read_whole(whole_word_tokenizer):
    assert whole_word_tokenizer.processor.encode("Zebra, photograph", out_type=str) == ["▁zebra", "▁,", "▁photograph"]
    assert whole_word_tokenizer.size <= 2500
    names = [whole_word_tokenizer.processor.id_to_piece(i) for i in range(whole_word_tokenizer.size)]
    assert len(set(names)) == whole_word_tokenizer.size
    added = [name for name in names[1200:] if name.startswith("▁") and len(name) > 3]
    assert len(added) > 200
    assert all(whole_word_tokenizer.processor.encode(name[1:], out_type=str) == [name] for name in added)


def test_the_json_copy_reads_alike(whole_word_tokenizer, tmp_path):
    write_fast_copy(whole_word_tokenizer.path, tmp_path / "tokenizer.json")
    copy = FastTokenizer(tmp_path / "tokenizer.json")
    runs = [character * count for character in "sx0e-" for count in (7, 40)]
    texts = [*TEXTS, *runs, *quickstart_texts()[:200]]
    assert copy.encode(texts, 64) == whole_word_tokenizer.encode(texts, 64)
    # A mark after a character that is a word by itself, as of keycaps (#\ufe0f\u20e3), is not dropped.
    for sign in string.punctuation + "«»§¶·¿×":
        for mark in ("\ufe0f", "\u0301\u0302", "\u3099"):
            text = f"x{sign}{mark}\u20e3 y"
            expected = whole_word_tokenizer.processor.normalize(text).replace("▁", " ").strip()
            assert copy.backend.normalizer.normalize_str(text) == expected, ascii(text)


def test_a_word_has_one_spelling(texts, whole_word_tokenizer, tmp_path):
    words = ["strasse", "istanbul", "كتاب", "احمد", "kirmizi", "2026"]
    respelled = PieceTokenizer(
        train_mixed_vocabulary(texts, tmp_path / "one.model", 2500, 1200, words=words, spellings=True)
    )
    alike = ["İstanbul istanbul I\u0307stanbul i\u0307stanbul", "STRASSE Straße STRAẞE strasse",
             "كِتَابٌ كتاب كـــتاب", "أَحمد احمد اَحْمَد", "KIRMIZI kırmızı Kirmizi k\u00adırm\u2060ız\u2069ı",
             "2026 ٢٠٢٦ ۲۰۲۶ २०२६ ２０２６"]  # fmt: skip
    for text, word in zip(alike, words[1:2] + words[:1] + words[2:], strict=True):
        assert set(respelled.processor.encode(text, out_type=str)) == {f"▁{word}"}
        assert len(set(whole_word_tokenizer.processor.encode(text, out_type=str))) > 1
    # What no piece can write is unknown as before, without its rules.
    space = respelled.processor.piece_to_id("▁")
    assert respelled.encode(["日本語 한국 ㍿"], 16) == [
        [respelled.bos_id, *[space, respelled.unk_id] * 3, respelled.eos_id]
    ]
    assert 10 * respelled.path.stat().st_size < 9 * whole_word_tokenizer.path.stat().st_size
    write_fast_copy(respelled.path, tmp_path / "tokenizer.json")
    rows = [*TEXTS, *alike, *quickstart_texts()[:200]]
    assert FastTokenizer(tmp_path / "tokenizer.json").encode(rows, 64) == respelled.encode(rows, 64)


def test_digits_and_invisible_characters_are_those_of_unicode():
    """By the names of Unicode's own table, not by ours."""
    table = spellings()
    for code in range(0x80, 0x1E000):
        name = unicodedata.name(character := chr(code), "")
        if " DIGIT " in name and unicodedata.category(character) == "Nd":
            ends = ("ZERO", "ONE", "TWO", "THREE", "FOUR", "FIVE", "SIX", "SEVEN", "EIGHT", "NINE")
            assert table[character] == str(ends.index(name.rpartition(" ")[2])), name
        if unicodedata.bidirectional(character) in ("LRE", "RLE", "PDF", "LRO", "RLO", "LRI", "RLI", "FSI", "PDI"):
            assert table[character] == "", name
    assert not any(text.isspace() for text in table.values())


def test_the_json_copy_keeps_every_combining_mark(texts, whole_word_tokenizer, tmp_path):
    """Decomposed letters with one mark and more, after letters with a rule of their own and without."""
    spelling_model = train_mixed_vocabulary(texts, tmp_path / "one.model", 2500, 1200, spellings=True)
    rows = ["Tiếng Việt", "Đường phố Nguyễn Huệ", "một tách cà phê đấy", "Où est né l'enfant ?", "İzmir'e", "Übergröße"]
    rows += [base + marks for base in "aeoßıçz" for marks in ("\u0301", "\u0302\u0301", "\u0323\u0302\u0301")]
    rows = [unicodedata.normalize("NFD", text) for text in rows]
    for model in (spelling_model, whole_word_tokenizer.path):
        write_fast_copy(model, tmp_path / "tokenizer.json")
        assert FastTokenizer(tmp_path / "tokenizer.json").encode(rows, 64) == PieceTokenizer(model).encode(rows, 64)


def test_kana_and_jamo_have_one_form_in_both_files(texts, tmp_path):
    """Decomposed (as macOS writes names of files) and half-width; jamo that are signs of their own stay apart."""
    ja, ko = ["がっこうでパンをたべる", "ガラスとピアノとヴィラ"], ["가나 다라", "나라 가다"]
    model_file = train_mixed_vocabulary(
        {**texts, "ja": ja * 400, "ko": ko * 400}, tmp_path / "t.model", 2500, 1200, spellings=True
    )
    write_fast_copy(model_file, tmp_path / "tokenizer.json")
    tokenizer, copy = PieceTokenizer(model_file), FastTokenizer(tmp_path / "tokenizer.json")
    words = [*ja[0].split(), *ja[1].split("と"), *ko[0].split(), *ko[1].split()]
    known_words = [word for word in words if tokenizer.unk_id not in tokenizer.encode([word], 64)[0]]
    assert len(known_words) > len(words) / 2
    for text, other in [*((word, unicodedata.normalize("NFD", word)) for word in known_words), ("ガピ", "ｶﾞﾋﾟ")]:
        assert (
            tokenizer.encode([text], 64)
            == tokenizer.encode([other], 64)
            == copy.encode([text], 64)
            == copy.encode([other], 64)
        )
    rows = ["ㄱㅏ ㅋㅋ 가", "ﾡￂ", "あ\u3099 ｱﾞ", "e\u0301 が\u0301", "गुरु की"]
    assert tokenizer.encode(rows, 64) == copy.encode(rows, 64)
    assert tokenizer.unk_id in tokenizer.encode(["ㄱㅏ"], 8)[0]


def test_the_same_text_gives_the_same_file(texts, whole_word_tokenizer, tmp_path):
    again = train_mixed_vocabulary(texts, tmp_path / "t.model", 2500, 1200, words=["zebra", "photograph"])
    assert again.read_bytes() == whole_word_tokenizer.path.read_bytes()


def test_a_word_after_a_clitic_is_the_token_of_that_word(texts, tmp_path):
    """Arabic writes and, the and by with the next word: the word needs a token without a space before it."""
    nouns = ["كتاب", "مدرسة", "مدينة", "سيارة", "قلم", "شجرة", "حديقة", "جبل"]
    heads = ["ال", "و", "ب", "وال", "بال", ""]
    rows = [f"{heads[(i + j) % 6]}{noun} {heads[(i * j) % 6]}{nouns[(j + 3) % 8]}" for i in range(60)
            for j, noun in enumerate(nouns)]  # fmt: skip
    corpora = {**texts, "ar": rows}
    model_file = train_mixed_vocabulary(
        corpora, tmp_path / "t.model", 1500, 700, words=nouns, prefixes=["ال", "و", "ب", "وال", "بال"]
    )
    read = sentencepiece.SentencePieceProcessor(model_file=str(model_file)).encode
    for noun in nouns:
        assert read(f"فوال{noun}", out_type=str)[-1] in (noun, f"ال{noun}", f"وال{noun}")
        for head in ("وال", "بال"):
            tokens = read(head + noun, out_type=str)
            assert tokens in ([f"▁{head}", noun], [f"▁{head}{noun}"]), tokens


def test_chinese_and_japanese_are_cut_into_words_of_one_form(texts, tmp_path):
    pytest.importorskip("opencc")
    zh = [
        "我昨天在北京大學學習漢語。",
        "他們在北京看書，我在學校看書。",
        "昨天的天氣很好，我們去公園。",
        "漢語很難，可是我喜歡學習。",
    ]
    ja = [
        "昨日東京で友達と映画を見ました。",
        "東京の天気はとてもいいです。",
        "私は本を読みました。",
        "友達は学校で勉強します。",
    ]
    corpora = {**texts, "zh": zh * 40, "ja": ja * 40}
    model_file = train_mixed_vocabulary(corpora, tmp_path / "t.model", 2000, 1400, spellings=True, simplified=True)
    tokenizer = PieceTokenizer(model_file)
    names = [tokenizer.processor.id_to_piece(i) for i in range(tokenizer.size)]
    assert not [name for name in names if PHRASE.fullmatch(name)]
    assert tokenizer.encode(["我在北京学习汉语，天气很好。"], 32) == tokenizer.encode(
        ["我在北京學習漢語，天氣很好。"], 32
    )
    assert tokenizer.encode(["ﾃｽﾄ"], 8) == tokenizer.encode(["テスト"], 8)
    assert tokenizer.processor.normalize("書籍 書く").count("书") == 2  # in Japanese too
    write_fast_copy(model_file, tmp_path / "tokenizer.json")
    assert FastTokenizer(tmp_path / "tokenizer.json").encode([*zh, *ja], 64) == tokenizer.encode([*zh, *ja], 64)


@pytest.mark.parametrize(
    ("text", "phrase"),
    [
        *(("▁我", True), ("我们", False), ("法兰克福市长", True), ("東京で", False), ("その会合に", True)),
        *(("コンピューター", False), ("▁コンピューター", True), ("▁abc", False)),
    ],
)
def test_phrases_are_no_tokens(text, phrase):
    assert bool(PHRASE.fullmatch(text)) == phrase


@pytest.mark.parametrize(
    ("size", "parts", "words", "message"),
    [(600, 600, [], "are not less than"), (610, 600, [f"w{chr(97 + i)}rd" for i in range(26)], "are more than 610")],
)
def test_too_many_words_are_refused(texts, tmp_path, size, parts, words, message):
    with pytest.raises(InputError, match=message):
        train_mixed_vocabulary({"": texts[""][:400]}, tmp_path / "t.model", size, parts, words=words)
    assert not list(tmp_path.iterdir())


def test_the_shipped_copies_of_the_tokenizer_read_alike():
    """tokenizer.json and tokenizer.model of msdc-mini are written together; a new one of either needs both."""
    folder = locate_model("msdc-mini")
    rows = [*golden_texts(), *quickstart_texts()[:200]]
    pieces, fast = PieceTokenizer(folder / "tokenizer.model"), FastTokenizer(folder / "tokenizer.json")
    assert pieces.encode(rows, 128) == fast.encode(rows, 128)


@pytest.mark.parametrize("name", [name for name in shipped_names() if (SHIPPED / name / "tokenizer.model").is_file()])
def test_both_files_of_a_shipped_model_read_letters_with_two_marks_alike(name):
    """Decomposed letters of all scripts with two marks or more, and words of Vietnamese; the copies that are stored."""
    folder = SHIPPED / name
    letters = [chr(code) for code in [*range(0xC0, 0x250), *range(0x370, 0x530), *range(0x1E00, 0x2000)]]
    decomposed = [unicodedata.normalize("NFD", letter) for letter in letters]
    texts = [f"x{parts}y {parts}" for parts in decomposed if len(parts) > 2]
    texts += [
        unicodedata.normalize("NFD", text) for text in ("Tiếng Việt", "Đường phố Nguyễn Huệ", "một tách cà phê đấy")
    ]
    pieces, copy = PieceTokenizer(folder / "tokenizer.model"), FastTokenizer(folder / "tokenizer.json")
    for text, expected, read in zip(texts, pieces.encode(texts, 99), copy.encode(texts, 99), strict=True):
        assert expected == read, ascii(text)
