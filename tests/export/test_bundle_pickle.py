"""A bundle travels to other processes and copies by its path."""

import copy
import pickle
import shutil

import numpy as np
import pytest
import tiny_models

import msdc
from msdc.errors import InputError

TEXTS = ["Where is the station?", "Wo ist der Bahnhof?"]


@pytest.mark.parametrize("runtime", ["executorch", "onnx"])
def test_copies_give_the_same_vectors_and_keep_the_settings(runtime):
    bundle = msdc.load_bundle(tiny_models.bundle(), runtime, threads=1)
    bundle.max_length, bundle.prompts = 6, {"query": "find: "}
    for other in (pickle.loads(pickle.dumps(bundle)), copy.deepcopy(bundle)):
        assert (other.runtime, other.threads, other.max_length, dict(other.prompts)) == (
            runtime, 1, 6, {"query": "find: "})  # fmt: skip
        assert other is not bundle
        assert other.fingerprint() == bundle.fingerprint()
        assert np.array_equal(other.encode_query(TEXTS), bundle.encode_query(TEXTS))


def test_a_folder_that_was_replaced_is_refused(tmp_path):
    folder = shutil.copytree(tiny_models.bundle(runtime="onnx"), tmp_path / "bundle")
    packed = pickle.dumps(msdc.load_bundle(folder))
    shutil.rmtree(folder)
    shutil.copytree(tiny_models.bundle("fp32", "onnx"), folder)
    with pytest.raises(InputError, match="another bundle than the one that was pickled"):
        pickle.loads(packed)


def test_joblib_runs_a_bundle_in_two_processes():
    from joblib import Parallel, delayed

    bundle = msdc.load_bundle(tiny_models.bundle(), "onnx", threads=1)
    parts = Parallel(n_jobs=2)(delayed(bundle.encode)([text]) for text in TEXTS)
    assert np.allclose(np.concatenate(parts), bundle.encode(TEXTS), atol=1e-6)
