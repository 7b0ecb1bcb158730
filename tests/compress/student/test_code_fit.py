"""Fitting a code: against planted codes, brute force and random codes; and the student that it goes into."""

import itertools
import json

import pytest
import tiny_models as tiny
import torch
from click.testing import CliRunner

from msdc.compress.cli import command
from msdc.compress.student.coded_table import choose_links, fit_code, kept_variance
from msdc.compress.student.cut import fit_student
from msdc.compress.student.io import load_student
from msdc.errors import InputError
from msdc.text.tokenizer import pad

R, K, E, V = 40, 2, 24, 400


def random_numbers(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def planted(noise=0.0):
    """A base and a table whose rows are sums of two of its rows."""
    base = random_numbers(R, E)
    generator = torch.Generator().manual_seed(1)
    index = torch.stack([torch.randperm(R, generator=generator)[:K] for _ in range(V)])
    weight = 0.5 + random_numbers(V, K, seed=2).abs()
    rows = (weight.unsqueeze(2) * base[index]).sum(1)
    return base, rows + noise * random_numbers(V, E, seed=3)


def best_of_all_supports(row, base, links):
    """The least squared error over every choice of `links` base rows."""
    errors = []
    for chosen in itertools.combinations(range(len(base)), links):
        picked = base[list(chosen)].T
        weight = torch.linalg.lstsq(picked, row.unsqueeze(1)).solution
        errors.append(float((picked @ weight - row.unsqueeze(1)).square().sum()))
    return min(errors)


def test_links_over_the_planted_base_are_found():
    base, rows = planted()
    code = choose_links(rows, base, K)
    error = (code.rows() - rows).square().sum(1) / rows.square().sum(1)
    # Greedy: where the first of two parallel base rows is taken, a support may be missed.
    assert float((error < 1e-8).float().mean()) > 0.9
    assert code.index_Vk.dtype == torch.int16
    # The strongest link comes first, so that each column of weights has a scale of its own.
    assert bool((code.weight_Vk[:, 0].abs() >= code.weight_Vk[:, 1].abs()).all())


def test_a_first_link_is_the_best_one_and_further_ones_are_near_it():
    base, rows = planted(noise=0.3)
    for row in rows[:8]:
        for links, most in ((1, 1.0001), (2, 1.5)):
            code = choose_links(row.unsqueeze(0), base, links)
            error, slack = float((code.rows()[0] - row).square().sum()), 0.05 * float(row.square().sum()) * (links - 1)
            assert error <= most * best_of_all_supports(row, base, links) + slack


def test_weights_are_least_squares_for_the_support():
    base, rows = planted(noise=0.3)
    code = choose_links(rows, base, 3)
    left = rows - code.rows()
    # The error is orthogonal to every base row that was used.
    products = (base[code.index_Vk.long()] @ left.unsqueeze(2)).squeeze(2)
    assert float(products.abs().max()) < 1e-3


def test_a_fit_beats_a_random_code_and_the_rows_it_starts_from():
    _, rows = planted(noise=0.1)
    fitted = kept_variance(rows, fit_code(rows, R, K, rounds=4).rows())
    start = kept_variance(rows, fit_code(rows, R, K, rounds=0).rows())
    random = kept_variance(rows, choose_links(rows, random_numbers(R, E, seed=9), K).rows())
    assert fitted > start > random
    assert fitted > 0.85 and kept_variance(rows, rows) == 1.0


def test_frequent_rows_are_kept_best():
    _, rows = planted(noise=0.5)
    frequency = torch.ones(V)
    frequency[:20] = 1000
    code = fit_code(rows, R, K, frequency)
    error = (code.rows() - rows).square().sum(1)
    assert float(error[:20].mean()) < 0.05 * float(error[20:].mean())


@pytest.mark.parametrize("shape", [{}, {"bottleneck": None}, {"place": "embedding", "bottleneck": 16}])
def test_a_student_whose_rows_repeat_stays_the_same_model(shape):
    """Few distinct rows fit a small base exactly; what is left is the mean, which moves into the positions."""
    student = tiny.student(**shape)
    with torch.no_grad():
        table = student.embedding.table.weight
        table.copy_(table[torch.arange(len(table)) % 30] + 0.7)
    coded, kept = fit_student(student, 30, 2)
    assert kept == pytest.approx(1.0, abs=1e-6) and coded.config.base_rows == 30
    batch = pad(tiny.rows(), 0)
    with torch.no_grad():
        assert torch.allclose(coded(*batch), student(*batch), atol=2e-5)
        # A code can be fitted anew.
        assert torch.allclose(fit_student(coded, 32, 3)[0](*batch), student(*batch), atol=2e-5)


@pytest.mark.parametrize(
    ("base_rows", "links", "frequency", "message"),
    [
        (R, 0, None, "2 to 5"),
        (R, 6, None, "2 to 5"),
        (V, 2, None, "no smaller than the table of 400"),
        (1, 2, None, "at least the 2 links"),
        (R, 2, torch.zeros(V), "not all zero"),
        (R, 2, torch.ones(V - 1), "400 non-negative"),
    ],
)
def test_bad_input_of_a_fit(base_rows, links, frequency, message):
    with pytest.raises(InputError, match=message):
        fit_code(planted()[1], base_rows, links, frequency)


def test_links_that_a_base_cannot_give():
    with pytest.raises(InputError, match="cannot be chosen"):
        choose_links(planted()[1], random_numbers(3, E), 4)
    with pytest.raises(InputError, match="cannot be chosen"):
        choose_links(planted()[1], random_numbers(30, E + 1), 2)


def test_command(bert_folder, tmp_path):
    out = tmp_path / "coded"
    arguments = ["code", str(bert_folder), "-o", str(out), "--base-rows", "60", "--links", "3"]
    result = CliRunner().invoke(command, [*arguments, "--json"], catch_exceptions=False)
    report, config = json.loads(result.stdout), load_student(out).config
    assert 0.5 < report["kept_variance"] < 1 and 0.5 < report["cosine"] < 1
    assert (config.base_rows, config.links) == (60, 3)
    shown = CliRunner().invoke(command, [*arguments, "--force"], catch_exceptions=False).stdout
    assert "each a sum of 3 of 60 base rows" in shown
    for changed, message in ((["--links", "0"], "2 to 5"), (["--base-rows", "500"], "no smaller"), ([], "exists")):
        refused = CliRunner().invoke(command, [*arguments, *changed, *(["--force"] if changed else [])])
        assert isinstance(refused.exception, InputError) and message in str(refused.exception)
