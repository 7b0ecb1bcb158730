"""Similarities of rows with rows, and the arguments that belong to a SentenceTransformer."""

import numpy as np
import pytest
import tiny_models

import msdc
from msdc.errors import InputError


@pytest.mark.parametrize("kind", ["cosine", "dot", "euclidean", "manhattan"])
def test_pairs_are_the_diagonal_of_all_pairs(kind):
    encoder = msdc.load_encoder(tiny_models.student_folder())
    encoder.similarity_fn_name = kind
    first_ND, second_ND = np.random.default_rng(0).normal(size=(2, 5, 7))
    expected_N = np.diagonal(encoder.similarity(first_ND, second_ND))
    assert np.allclose(encoder.similarity_pairwise(first_ND, second_ND), expected_N, atol=1e-5)
    assert encoder.get_sentence_embedding_dimension() == encoder.width
    with pytest.raises(InputError, match=r"are not both \[N, D\]"):
        encoder.similarity_pairwise(first_ND, second_ND[:3])


def test_what_numpy_cannot_give_names_the_object_that_can():
    encoder = msdc.load_encoder(tiny_models.student_folder())
    assert np.array_equal(encoder.encode(["one"], device="cpu"), encoder.encode(["one"]))
    with pytest.raises(
        InputError, match=r"`convert_to_tensor` True is not supported.*as_sentence_transformer\(model\)"
    ):
        encoder.encode(["one"], convert_to_tensor=True)
