"""What a stage computes beyond its objectives: groups of equal length, masks, layer states, triples, domains."""

import numpy as np
import objective_oracles as oracle
import pytest
import torch
from safetensors.torch import load_file

from msdc.compress.student.model import Student, StudentConfig
from msdc.compress.student.stock import to_student
from msdc.distill import distill
from msdc.distill.data import Batch, Row
from msdc.distill.objectives import MemoryBank, find_objective, sentence_similarity
from msdc.distill.recipe import Stage
from msdc.distill.run_folder import Metrics
from msdc.distill.tasks import make_task
from msdc.distill.tasks.generative import GenerativeTask, inside, mask_many, mask_one
from msdc.distill.tasks.sentence import encode_sides
from msdc.distill.teacher import CachedTeacher, mined
from msdc.errors import InputError
from msdc.loading import load_encoder
from msdc.text.tokenizer import pad


def student(**settings) -> Student:
    config = {"vocabulary": 60, "hidden": 16, "heads": 2, "intermediate": 32, "unit": 2, "repeats": 2, "positions": 20}
    torch.manual_seed(3)
    return Student(StudentConfig(**{**config, "dropout": 0.0, "normalize": False, **settings}))


def side(lengths, seed=0):
    rng = np.random.default_rng(seed)
    return pad([[2, *rng.integers(4, 60, n), 3] for n in lengths], 0)


def batch(lengths=(1, 5, 9, 4), other=(7, 2, 3, 8), **teacher) -> Batch:
    rows = [Row(f"s{i}", f"t{i}", "de") for i in range(len(lengths))]
    texts_BS = torch.arange(2 * len(rows)).view(-1, 2)
    return Batch(lambda: rows, side(lengths), side(other, 1), **{"texts_BS": texts_BS, **teacher})


@pytest.mark.parametrize("tokens", [1, 40, 10_000])
def test_groups_of_near_length_change_nothing(monkeypatch, tokens):
    monkeypatch.setattr("msdc.distill.tasks.sentence.GROUP_TOKENS", tokens)
    net = student(unit=1)
    sides = [side((3, 9, 1, 16, 3)), side((4, 4, 12, 2, 7), 1)]
    for (ids, mask), got in zip(sides, encode_sides(net, sides), strict=True):
        torch.testing.assert_close(got, net(ids, mask), atol=1e-6, rtol=1e-5)


def test_a_process_without_rows_has_a_loss_to_go_backward_from():
    task = make_task(student(), Stage(name="g", teacher=None, objective=["unified_generative"]), mask_id=1)
    empty = (torch.zeros(0, 4, dtype=torch.long), torch.zeros(0, 4, dtype=torch.bool))
    loss = task(Batch(list, empty, empty))["loss"]
    loss.backward()
    assert float(loss.detach()) == 0.0
    assert float(task.dense.weight.grad.abs().sum()) == 0.0


def test_one_inner_token_is_masked_and_every_one_can_be():
    ids, mask = side((1, 5, 9))
    masked_positions = set()
    for draw in np.linspace(0, 0.999, 60):
        here = torch.tensor([True, True, False])
        changed, token = mask_one(ids, mask, here, torch.full((3,), float(draw)), 1)
        masked = (changed != ids).nonzero()
        assert masked[:, 0].tolist() == [0, 1]
        for row, column in masked.tolist():
            assert inside(mask)[row, column]
            assert changed[row, column] == 1
            assert token[row] == ids[row, column]
        masked_positions.add(int(masked[1, 1]))
    assert masked_positions == {1, 2, 3, 4, 5}


@pytest.mark.parametrize("task", ["smlm", "xtr", "ugt"])
def test_generative_loss_equals_the_oracle(task):
    name = "unified_generative" if task == "ugt" else task
    alignment = {"name": "sentence_alignment", "weight": 2.0, "options": {"reduction": "mean"}}
    stage = Stage(name="g", teacher=None, objective=[name, alignment])
    generative = make_task(student(), stage, mask_id=1)
    assert isinstance(generative, GenerativeTask)
    inputs = batch()
    inputs.seed = 5
    result = generative(inputs)
    torch.manual_seed(5)
    in_source, draw = (torch.rand(4) < 0.5).tolist(), torch.rand(4).tolist()
    expected, sentences, masked_ids = 0.0, [], []
    for number, (ids, mask) in enumerate((inputs.source, inputs.target)):
        rows = ids.clone()
        for row in range(4):
            inner = int(mask[row].sum()) - 2
            position = 1 + int(draw[row] * inner)
            if in_source[row] == (number == 0):
                masked_ids.append((row, int(ids[row, position])))
                rows[row, position] = 1
        sentences.append(generative.student(rows, mask))
    tokens = [token for _, token in sorted(masked_ids)]
    for number in (0, 1):
        head = generative.norm(torch.nn.functional.gelu(generative.dense(sentences[number])))
        logits = (head @ generative.student.embedding.table.weight.T + generative.bias_V).tolist()
        partner, partner_mask = (inputs.target, inputs.source)[number]
        inner = [[bool(m) and 0 < t < int(row.sum()) - 1 for t, m in enumerate(row)] for row in partner_mask]
        here = [flag == (number == 0) for flag in in_source]
        expected += oracle.unified_generative(logits, tokens, here, partner.tolist(), inner, task)
    aligned = oracle.sentence_alignment(sentences[0].tolist(), sentences[1].tolist(), "mean")
    assert float(result[name]) == pytest.approx(expected, rel=1e-4)
    assert float(result["loss"].detach()) == pytest.approx(expected + 2 * aligned, rel=1e-4)
    result["loss"].backward()
    assert generative.student.embedding.table.weight.grad.abs().sum() > 0


def test_layer_states_are_those_the_layers_give():
    net = student().eval()
    ids, mask = side((3, 9, 1))
    caught = []
    hooks = [layer.register_forward_hook(lambda _m, _i, out: caught.append(out[:, 0])) for layer in net.layers]
    expected = net(ids, mask)
    for hook in hooks:
        hook.remove()
    sentence, states = net.layer_states(ids, mask, (1, 3))
    assert net.depth == 4 == len(caught)
    torch.testing.assert_close(sentence, expected)
    torch.testing.assert_close(states, torch.stack([caught[0], caught[2]], 1))


def test_states_of_the_teacher_come_from_the_store(tiny_teacher, tmp_path, monkeypatch):
    plain = load_encoder(tiny_teacher)
    teacher = CachedTeacher(load_encoder(tiny_teacher), tmp_path, 20, layers=(1, 2))
    texts = ["a cat sat", "house"]
    rows = teacher.rows(texts)
    np.testing.assert_allclose(rows[:, : teacher.width], plain.encode(texts), atol=2e-3)
    ids, mask = pad(plain.tokenize(texts), plain.tokenizer.pad_id)
    _, states = to_student(plain).layer_states(ids, mask, (1, 2))
    np.testing.assert_allclose(rows[:, teacher.width :], states.flatten(1).detach().numpy(), atol=5e-3)
    # Computed once, found again, and kept apart from other layers, other precisions and plain vectors.
    again = CachedTeacher(load_encoder(tiny_teacher), tmp_path, 20, layers=(1, 2))
    monkeypatch.setattr(again, "_compute", lambda texts, _: np.zeros((len(texts), again.row_width), np.float32))
    np.testing.assert_array_equal(again.rows(texts), rows)
    others = [
        CachedTeacher(load_encoder(tiny_teacher), tmp_path, 20, **settings).store.folder
        for settings in ({}, {"layers": (1,)}, {"precision": "bfloat16"}, {"layers": (1,), "precision": "bfloat16"})
    ]
    assert len({teacher.store.folder, *others}) == 5
    assert CachedTeacher(plain, tmp_path, 20).rows(texts).shape == (2, plain.width)


def plain_recipe(tiny_teacher, parallel_tsv, tmp_path, objective, **stage_settings) -> dict:
    """A student of another width than its teacher, on plain text of two domains."""
    sentences = [line.split("\t")[0] for line in parallel_tsv.read_text(encoding="utf-8").splitlines()[1:160]]
    for name, part in (("one", sentences[:80]), ("two", sentences[80:])):
        (tmp_path / f"{name}.txt").write_text("\n".join(part) + "\n", encoding="utf-8")
    scratch = {"layers": 2, "hidden": 24, "heads": 2, "intermediate": 32}
    scratch["vocabulary"] = {"train": 300, "sentences_per_language": 200}
    stage = {"name": "only", "teacher": "teacher", "objective": objective, "steps": 6, "batch": 8, "max_length": 20}
    return {
        "name": "plain",
        "teacher": str(tiny_teacher),
        "assistant": None,
        "student": {"scratch": scratch, "bottleneck": None, "max_length": 20, "dropout": 0.1},
        "corpora": [{"path": str(tmp_path / f"{name}.txt")} for name in ("one", "two")],
        "heldout": {"pairs": 5, "share": 0.1},
        "threads": 1,
        "precision": "float32",
        "cache": str(tmp_path / "outputs"),
        "stages": [{**stage, "learning_rate": 1e-3, "evaluate_every": 3, **stage_settings}],
    }


@pytest.mark.parametrize(
    "objective",
    [{"name": "pkd", "weight": 10.0, "options": {"layers": "last"}},
     {"name": "contrastive_distillation", "options": {"bank": 20}}],
)  # fmt: skip
def test_distilcse_and_its_baselines_run(objective, tiny_teacher, parallel_tsv, tmp_path):
    result = distill(plain_recipe(tiny_teacher, parallel_tsv, tmp_path, ["kd", objective]), tmp_path / "run")
    start = load_file(tmp_path / "run" / "student-start" / "model.safetensors")
    end = load_file(result.student / "model.safetensors")
    # The projection to the teacher's width is dropped: nothing is saved but the student.
    assert start.keys() == end.keys()
    assert all(not torch.equal(start[key], end[key]) for key in start if key.endswith("query.weight"))
    assert any(objective["name"] in row for row in Metrics(tmp_path / "run" / "metrics.jsonl").rows())


def test_the_kept_weights_lie_between_start_and_end(tiny_teacher, parallel_tsv, tmp_path):
    weights = {}
    for share in (0.0, 0.4):
        tree = plain_recipe(tiny_teacher, parallel_tsv, tmp_path, "kd", steps=4, evaluate_every=4, start_share=share)
        distill(tree, tmp_path / f"run-{share}")
        weights[share] = load_file(tmp_path / f"run-{share}" / "student" / "model.safetensors")
    start = load_file(tmp_path / "run-0.4" / "student-start" / "model.safetensors")
    for name, end in weights[0.0].items():
        torch.testing.assert_close(weights[0.4][name], end + 0.4 * (start[name] - end))
    assert not torch.equal(weights[0.4]["layers.0.query.weight"], weights[0.0]["layers.0.query.weight"])


@pytest.mark.parametrize("objective", ["guided_contrastive", "contrastive_distillation", "sentence_alignment"])
def test_equal_texts_of_a_batch_and_of_the_bank_are_no_negatives(objective):
    """Four questions with one answer, in two steps: neither the batch nor the bank has a negative."""
    task = make_task(student(), Stage(name="t", objective=[objective]))
    torch.manual_seed(4)
    inputs = batch(teacher_source_BD=torch.randn(4, 16), teacher_target_BD=torch.randn(4, 16))
    assert float(task(inputs)["loss"].detach()) > 0.0
    for equal in ({1: 77}, {0: 88, 1: 88}):  # one answer; one text without a translation
        for column, text in equal.items():
            inputs.texts_BS[:, column] = text
        assert float(task(inputs)["loss"].detach()) == 0.0
    for _ in range(2):
        task.after_backward()
        assert float(task(inputs)["loss"].detach()) == 0.0
    if task.bank is not None:
        assert len(task.bank) == 8
        assert len(set(task.bank.texts().tolist())) == 1


def test_a_step_of_one_side_has_the_objectives_that_need_one():
    objective = [
        {"name": "multilingual_mse"},
        {"name": "similarity_distillation", "weight": 0.5, "options": {"temperature": 0.2, "bank": 8}},
    ]
    stage = Stage(name="t", teacher=None, objective=objective, source_share=0.5)
    task = make_task(student(), stage)
    task.bank = MemoryBank(16, 8)
    task.bank.push(torch.randn(3, 16))
    inputs = batch(teacher_source_BD=torch.randn(4, 16))
    losses = task(inputs, train_source=False)
    target = task.student(*inputs.target)
    teacher, bank = inputs.teacher_source_BD.tolist(), task.bank.vectors().tolist()
    near = oracle.similarity_distillation(teacher, target.tolist(), bank, temperature=0.2)
    assert float(losses["similarity_distillation"]) == pytest.approx(near, rel=1e-4)
    assert float(losses["loss"]) == pytest.approx(float(losses["target_only"]) + 0.5 * near, rel=1e-4)
    # Its teacher vectors are negatives of the next step.
    task.after_backward()
    assert len(task.bank) == 7


def test_what_a_step_of_one_side_compared_is_remembered():
    """The teacher's vectors of the targets with the targets' texts; of a step of both sides those of the sources."""
    task = make_task(student(), Stage(name="t", objective=["contrastive_distillation"], source_share=0.5))
    inputs = batch(teacher_source_BD=torch.randn(4, 16), teacher_target_BD=torch.randn(4, 16))
    for train_source, vectors, column in ((False, inputs.teacher_target_BD, 1), (True, inputs.teacher_source_BD, 0)):
        task(inputs, train_source=train_source)
        task.after_backward()
        assert torch.equal(task.bank.vectors()[-4:], vectors)
        assert torch.equal(task.bank.texts()[-4:], inputs.texts_BS[:, column])


def test_a_step_of_one_side_is_reduced_as_the_stage_is():
    inputs, losses = batch(teacher_source_BD=torch.randn(4, 16)), []
    for how in ("mean", "sum"):
        use = {"name": "multilingual_mse", "options": {"reduction": how}}
        task = make_task(student(), Stage(name="t", objective=[use], source_share=0.5))
        losses.append(float(task(inputs, train_source=False)["loss"].detach()))
    assert losses[1] == pytest.approx(16 * losses[0], rel=1e-5)


@pytest.mark.parametrize("project", [False, True])
def test_first_numbers_have_a_loss_of_their_own(project, tiny_teacher, tmp_path):
    """MSE of m numbers: the map's first m columns against the whole teacher, or its first m numbers without a map."""
    teacher = CachedTeacher(load_encoder(tiny_teacher), tmp_path, 20)
    net = student(hidden=8 if project else teacher.width, heads=2)
    objective = ["multilingual_mse", "multilingual_contrastive"]
    stage = Stage(name="g", objective=objective, dimensions=(2, 5), source_share=0.5)
    task, teacher_BD = make_task(net, stage, teacher), torch.randn(4, teacher.width)
    inputs = batch(teacher_source_BD=teacher_BD)
    source, target = (net(*tokens).detach() for tokens in (inputs.source, inputs.target))
    mse, mcl, one_side = 0.0, 0.0, 0.0
    for width in (net.width, 2, 5):
        first, second, label = source[:, :width], target[:, :width], teacher_BD if project else teacher_BD[:, :width]
        mcl += oracle.multilingual_contrastive(teacher_BD.tolist(), first.tolist(), second.tolist())
        if project:
            first, second = (vectors @ task.project.weight[:, :width].T for vectors in (first, second))
        mse += oracle.multilingual_mse(label.tolist(), first.tolist(), second.tolist())
        one_side += oracle.kd(label.tolist(), second.tolist())
    losses = task(inputs)
    assert float(losses["multilingual_mse"]) == pytest.approx(mse, rel=1e-4)
    assert float(losses["multilingual_contrastive"]) == pytest.approx(mcl, rel=1e-4)
    assert float(losses["loss"].detach()) == pytest.approx(mse + mcl, rel=1e-4)
    assert float(task(inputs, train_source=False)["loss"].detach()) == pytest.approx(one_side, rel=1e-4)
    with pytest.raises(InputError, match=r"dimensions \[2, 384\]: vectors have"):
        make_task(net, Stage(name="g", objective=objective, dimensions=(2, 384)), teacher)


def test_a_mini_batch_changes_memory_and_nothing_else():
    """Loss and gradients of a contrastive batch in groups of 3, whose activations are not kept, with dropout too."""
    inputs = batch((1, 5, 9, 4, 3, 12), (7, 2, 3, 8, 14, 1))
    saved_sizes, gradients = [], []
    for mini_batch in (None, 3):
        net = student(unit=1, repeats=3).double()
        task = make_task(net, Stage(name="g", teacher=None, objective=["sentence_alignment"], mini_batch=mini_batch))
        saved = []
        with torch.autograd.graph.saved_tensors_hooks(lambda x: saved.append(x.numel()) or x, lambda x: x):  # noqa: B023
            loss = task(inputs)["loss"]
        loss.backward()
        saved_sizes.append(sum(saved))
        gradients.append([loss.detach(), *(p.grad for p in net.parameters() if p.grad is not None)])
    torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-12, atol=1e-12)
    assert saved_sizes[1] < saved_sizes[0] / 10
    # The backward pass draws the dropout of the forward pass: the loss falls along its gradient as a line.
    net = student(unit=1, dropout=0.5).double()
    task = make_task(net, Stage(name="g", teacher=None, objective=["sentence_alignment"], mini_batch=3)).train()
    weight = net.embedding.table.weight
    step, values = 1e-6, []
    for sign in (0, 1, -1):
        torch.manual_seed(4)
        values.append(task(inputs)["loss"])
        if not sign:
            (slope,) = torch.autograd.grad(values[0], weight)
        weight.data += step * slope * (1 if sign == 0 else -2)
    assert float(values[1] - values[2]) == pytest.approx(2 * step * float(slope.square().sum()), rel=1e-4)


def test_a_target_of_the_same_source_is_not_mined(tiny_teacher, tmp_path):
    """Several answers to one question: none is a negative of it, nor is the question itself."""
    rows = [Row("a cat sleeps", f"eine katze {i}", "de") for i in range(4)]
    rows += [Row("a dog runs", "a cat sleeps", "de"), Row("the sun is red", "die sonne", "de")]
    teacher = CachedTeacher(load_encoder(tiny_teacher), tmp_path / "outputs", 20)
    mined_rows = mined(rows, teacher, 1)
    assert mined_rows
    for row in mined_rows:
        assert not {other.target for other in rows if other.source == row.source} & set(row.negatives)
        assert row.source not in row.negatives


class CraftedTeacher:
    """A teacher whose cosine of a text to the source is given by the text's name."""

    def __init__(self, cosine_of_text):
        self.cosine_of_text = cosine_of_text

    def vectors(self, texts, shared=False):
        cosines = np.array([self.cosine_of_text[text] for text in texts])
        return np.stack([cosines, np.sqrt(1 - cosines**2)], axis=1).astype(np.float32)


def test_another_target_of_the_source_is_not_mined_though_it_is_the_nearest():
    """The vectors alone would choose it: it is below the row's own target and above all others."""
    cosines = {"question": 1.0, "first answer": 0.9, "second answer": 0.8, "other": 0.3, "third": 0.5, "far": 0.1}
    rows = [Row("question", "first answer", "de"), Row("question", "second answer", "de"), Row("other", "third", "de"),
            Row("far", "other", "de")]  # fmt: skip
    negatives = {
        row.target: row.negatives for row in mined(rows, CraftedTeacher(cosines), 1) if row.source == "question"
    }
    assert negatives == {"first answer": ("third",), "second answer": ("third",)}


def test_texts_in_another_form_are_not_mined_and_prompts_are_those_of_their_side():
    """Nearer than what may be mined: two spellings of another answer, and the question itself as somebody's target."""
    cosines = {"q: question": 1.0, "p: first answer": 0.9, "p: second answer": 0.8, "p: Second Answer!": 0.7,
               "p: Question?": 0.6, "p: third": 0.5, "q: other": 0.3, "q: far": 0.1}  # fmt: skip
    rows = [Row("question", "first answer", "de"), Row("question", "second answer", "de"), Row("other", "third", "de"),
            Row("far", "Second Answer!", "de"), Row("far", "Question?", "de")]  # fmt: skip
    negatives = [row.negatives for row in mined(rows, CraftedTeacher(cosines), 1, prompts=("q: ", "p: "))]
    assert negatives[:2] == [("third",), ("third",)]


def test_an_answer_in_other_case_is_not_mined(tiny_teacher, tmp_path):
    """It has another vector, so the margin alone does not exclude it."""
    rows = [Row(f"question {n}", f"the Answer {n % 2}" + "." * n, "de") for n in range(4)]
    teacher = CachedTeacher(load_encoder(tiny_teacher), tmp_path / "outputs", 20)
    mined_rows = mined(rows, teacher, 1)
    assert mined_rows
    assert all(row.target.strip(".") not in row.negatives[0] for row in mined_rows)


def test_mined_negatives_are_near_and_further_than_the_target(tiny_teacher, parallel_tsv, tmp_path, monkeypatch):
    monkeypatch.setattr("msdc.distill.teacher.mining.MINED_TOGETHER", 7)  # of 40 rows
    lines = [line.split("\t") for line in parallel_tsv.read_text(encoding="utf-8").splitlines()[1:41]]
    rows = [Row(source, target, "de") for source, target, *_ in lines]
    teacher = CachedTeacher(load_encoder(tiny_teacher), tmp_path / "outputs", 20)
    mined_rows = {row.source: row for row in mined(rows, teacher, 3, margin=0.05)}
    targets = list(dict.fromkeys(row.target for row in rows))
    dropped = 0
    for row in rows:
        scores = oracle.cosines(teacher.vectors([row.source]), teacher.vectors(targets))[0]
        target_score = scores[targets.index(row.target)]
        far = sorted(
            (s, t) for s, t in zip(scores, targets, strict=True) if s < target_score - 0.05 and t != row.source
        )[::-1]
        if len(far) < 3:
            dropped += row.source not in mined_rows
        else:
            assert mined_rows[row.source].negatives == tuple(t for _, t in far[:3])
            assert mined_rows[row.source]._replace(negatives=()) == row
    assert mined_rows
    assert dropped
    with pytest.raises(InputError, match="none of 1 rows"):
        mined(rows[:1], teacher, 3)
    # A stage trains on them; scores are the teacher's cosines, also of triples from a file.
    objective = ["margin_mse", "listwise_kl", {"name": "guided_contrastive", "options": {"margin": 0.05}}]
    recipe = plain_recipe(
        tiny_teacher, parallel_tsv, tmp_path, objective, mined_negatives=3, mini_batch=8, dimensions=[4, 8]
    )
    recipe["corpora"] = [{"path": str(tmp_path / "pairs.tsv"), "languages": ["de"]}]
    (tmp_path / "pairs.tsv").write_text("".join(f"{a}\t{b}\n" for a, b, *_ in lines), encoding="utf-8")
    result = distill(recipe, tmp_path / "run")
    assert {"share_margin_mse", "share_listwise_kl", "share_guided_contrastive"} <= set(result.stages["only"])
    texts = ([row.source for row in rows[:4]], [row.target for row in rows[:4]], [r.target for r in rows[4:12]])
    queries, passages, negatives = (torch.from_numpy(teacher.vectors(column)) for column in texts)
    negatives, inputs = negatives.view(4, 2, -1), batch()
    inputs.teacher_source_BD, inputs.teacher_target_BD, inputs.teacher_negatives_BND = queries, passages, negatives
    inputs.negatives = tuple(x.view(4, 2, -1) for x in side((3, 1, 4, 1, 5, 9, 2, 6)))
    task = make_task(student(), Stage(name="g", objective=["margin_mse"]), teacher)  # a teacher's cosines
    vectors = [task.student(*tokens).detach() for tokens in (inputs.source, inputs.target)]
    vectors.append(task.student(*(x.flatten(0, 1) for x in inputs.negatives)).detach().view(4, 2, -1))
    scores = [oracle.cosines(queries[i : i + 1], [passages[i], *negatives[i]])[0] for i in range(4)]
    assert float(task(inputs)["loss"].detach()) == pytest.approx(oracle.margin_mse(scores, *vectors), rel=1e-4)


def test_states_need_a_teacher_and_enough_layers(tiny_teacher, parallel_tsv, tmp_path):
    tree = plain_recipe(tiny_teacher, parallel_tsv, tmp_path, ["pkd"], teacher=None)
    with pytest.raises(InputError, match="needs a teacher"):
        distill(tree, tmp_path / "run")
    tree = plain_recipe(tiny_teacher, parallel_tsv, tmp_path, ["pkd"])
    tree["student"]["scratch"]["layers"] = 1
    with pytest.raises(InputError, match="at least 2 layers"):
        distill(tree, tmp_path / "other")


def test_mlm_masks_fifteen_percent_of_the_inner_tokens():
    ids, mask = side([18] * 400)
    torch.manual_seed(0)
    draw, how = torch.rand(ids.shape), torch.rand(ids.shape)
    other = torch.full_like(ids, 59)
    changed, picked = mask_many(ids, mask, draw, how, other, 1)
    assert not (picked & ~inside(mask)).any()
    assert torch.equal(changed[~picked], ids[~picked])
    assert float(picked.sum()) / float(inside(mask).sum()) == pytest.approx(0.15, abs=0.01)
    assert float((changed[picked] == 1).float().mean()) == pytest.approx(0.8, abs=0.03)
    assert float((changed[picked] == ids[picked]).float().mean()) == pytest.approx(0.1, abs=0.03)


@pytest.mark.parametrize("names", [["mlm"], ["mlm", "xtr"]])
def test_mlm_predicts_each_masked_token_from_its_own_state(names):
    task = make_task(student(), Stage(name="g", teacher=None, objective=names), mask_id=1)
    inputs = batch((9, 12, 9, 14), (11, 8, 13, 10))
    inputs.seed = 5
    result = task(inputs)
    torch.manual_seed(5)
    losses, pooled = [], []
    for ids, mask in (inputs.source, inputs.target):
        draw, how, other = (torch.rand(len(ids), task.stage.max_length) for _ in range(3))
        rows = ids.clone()
        places = []
        for row in range(len(ids)):
            for position in range(1, int(mask[row].sum()) - 1):
                if draw[row, position] < 0.15:
                    places.append((row, position))
                    rows[row, position] = (
                        1
                        if how[row, position] < 0.8
                        else ids[row, position]
                        if how[row, position] < 0.9
                        else int(60 * other[row, position])
                    )
        hidden = task.student.hidden(rows, mask)
        pooled.append(task.student.head(hidden, mask))
        for row, position in places:
            inner = task.norm(torch.nn.functional.gelu(task.dense(hidden[row, position])))
            logits = task.student.embedding.table.weight @ inner + task.bias_V
            losses.append(float(-torch.log(torch.softmax(logits, 0)[ids[row, position]]).detach()))
    assert len(losses) > 3
    assert float(result["mlm"]) == pytest.approx(sum(losses) / len(losses), rel=1e-4)
    if "xtr" in names:
        expected = 0.0
        for vectors, partner in zip(pooled, (inputs.target, inputs.source), strict=True):
            head = task.norm(torch.nn.functional.gelu(task.dense(vectors)))
            logits = (head @ task.student.embedding.table.weight.T + task.bias_V).tolist()
            inner = [[bool(m) and 0 < t < int(row.sum()) - 1 for t, m in enumerate(row)] for row in partner[1]]
            expected += oracle.unified_generative(logits, [0] * 4, [False] * 4, partner[0].tolist(), inner, "xtr")
        assert float(result["xtr"]) == pytest.approx(expected, rel=1e-4)
    with pytest.raises(InputError, match="two stages"):
        make_task(student(), Stage(name="g", teacher=None, objective=["mlm", "smlm"]), mask_id=1)


@pytest.mark.parametrize("objective", ["multilingual_contrastive", "multilingual_mse"])
def test_only_objectives_of_equal_widths_project(tiny_teacher, tmp_path, objective):
    teacher, projected = CachedTeacher(load_encoder(tiny_teacher), tmp_path, 20), objective == "multilingual_mse"
    net = student(hidden=8)
    assert teacher.width != net.width
    task = make_task(net, Stage(name="g", objective=[objective]), teacher)
    assert (task.project is not None) == projected
    task.project = task.project or torch.nn.Linear(8, teacher.width, bias=False)  # what one that projects would use
    teacher_BD = torch.randn(4, teacher.width, generator=torch.Generator().manual_seed(2))
    inputs = batch(teacher_source_BD=teacher_BD)
    vectors = [task.project(net(*tokens)) if projected else net(*tokens) for tokens in (inputs.source, inputs.target)]
    expected = getattr(oracle, objective)(teacher_BD.tolist(), *(side_vectors.tolist() for side_vectors in vectors))
    assert float(task(inputs)["loss"].detach()) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("name", ["multilingual_mse", "kd"])
def test_the_papers_scale_sums_over_dimensions(name):
    generator = torch.Generator().manual_seed(1)
    vectors = {n: torch.randn(3, 7, generator=generator) for n in find_objective(name).inputs}
    mean, total = (float(find_objective(name)(vectors, reduction=how)) for how in ("mean", "sum"))
    teacher, *others = (v.tolist() for v in vectors.values())
    expected = sum((a - b) ** 2 for o in others for x, y in zip(teacher, o, strict=True)
                   for a, b in zip(x, y, strict=True)) / 3  # fmt: skip
    assert total == pytest.approx(expected, rel=1e-5)
    assert mean == pytest.approx(expected / 7, rel=1e-5)
    with pytest.raises(InputError, match="mean, sum"):
        find_objective(name)(vectors, reduction="rows")


def test_sim_by_rows_is_as_large_as_a_batch_mean_loss():
    generator = torch.Generator().manual_seed(1)
    pair = torch.randn(16, 8, generator=generator), torch.randn(16, 8, generator=generator)
    total, rows, mean = (float(sentence_similarity(*pair, reduction=how)) for how in ("sum", "rows", "mean"))
    assert rows == pytest.approx(total / 16)
    assert mean == pytest.approx(total / 256)
