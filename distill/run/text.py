"""The text of a run: its corpora without excluded sentences, and the dictionary aligned from them."""

from __future__ import annotations

from functools import cached_property

from msdc.distill.assistant import sample_rows
from msdc.distill.data.corpora import open_corpora
from msdc.distill.data.exclusion import Exclusion, read_exclusion
from msdc.distill.data.stream import TextStream
from msdc.distill.data.word_translation import Dictionary, learn_dictionary, put_into_words
from msdc.distill.recipe import Recipe, Stage
from msdc.progress import say

DICTIONARY_PAIRS = 60_000  # per language; more pairs add rare words only


class RunText:
    """The text of a recipe; excluded sentences and the dictionary are read and made once, when they are needed."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe

    @cached_property
    def without(self) -> Exclusion | None:
        """The sentences that the recipe leaves out; None: none."""
        found = read_exclusion(self.recipe.exclude)
        if found is not None:
            say(f"exclude: rows with one of {len(found.sentences)} sentences, or one near it, stay out")
        return found

    def stream(self, stage: Stage | None = None) -> TextStream:
        """The text of a stage, or of the recipe."""
        corpora = stage.corpora if stage is not None and stage.corpora is not None else self.recipe.corpora
        stream = TextStream(
            open_corpora(corpora, self.without),
            self.recipe.seed,
            self.recipe.heldout,
            stage.balance if stage is not None else "proportional",
            self.recipe.buffer,
            stage.sample if stage is not None and stage.sample is not None else self.recipe.sample,
        )
        if any(source.corpus.word_by_word for source in stream.sources):
            stream.sources = put_into_words(stream.sources, self._dictionary)
        return stream

    @cached_property
    def _dictionary(self) -> Dictionary:
        say("dictionary: aligning the words of the recipe's parallel text")
        sources = open_corpora(self.recipe.corpora, self.without)
        stream = TextStream(sources, self.recipe.seed, self.recipe.heldout)
        return learn_dictionary(sample_rows(stream, DICTIONARY_PAIRS, self.recipe.seed))
