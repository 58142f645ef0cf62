"""The pytest plugin of peref: golden cases as test parameters. Loading it imports pytest and nothing else.

    @pytest.mark.peref(pe="rope", level="op", dtypes=["f32"])
    def test_rope(peref_case):
        peref_case.check(q_rotated=mine(peref_case.inputs["q"], peref_case.inputs["positions"],
        peref_case.facts["layout"]))

Every keyword is a text or a list of them, with * and ? (dtypes: f64, f32, f16, bf16); what is left out is not
narrowed. See peref.golden.judge.trial.
"""

import pytest

BOOK = pytest.StashKey()
MARK = "peref(pe, level, flag, case, group, dtypes, limit): which golden cases peref_case goes through"


def pytest_addoption(parser):
    parser.getgroup("peref").addoption(
        "--peref-golden",
        metavar="FOLDER",
        help="golden files for peref_case, in place of those that come with peref",
    )


def pytest_configure(config):
    config.addinivalue_line("markers", MARK)


def pytest_generate_tests(metafunc):
    if "peref_case" not in metafunc.fixturenames:
        return
    from peref.errors import PerefError
    from peref.golden.judge import trial

    asked = {}
    for mark in reversed(list(metafunc.definition.iter_markers("peref"))):
        if mark.args:
            raise pytest.UsageError(
                f"{metafunc.definition.nodeid}: @pytest.mark.peref takes keywords alone, such as pe='rope'"
            )
        asked |= mark.kwargs
    try:
        if BOOK not in metafunc.config.stash:
            metafunc.config.stash[BOOK] = trial.book(metafunc.config.getoption("--peref-golden"))
        trials = trial.trials(metafunc.config.stash[BOOK], **asked)
    except PerefError as error:
        raise pytest.UsageError(f"{metafunc.definition.nodeid}: {error}") from error
    metafunc.parametrize("peref_case", trials, ids=[one.name for one in trials], indirect=True)


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem):
    result = yield
    case = pyfuncitem.funcargs.get("peref_case")
    if case is not None and not case.checked:
        pytest.fail(f"{case.name}: nothing was checked; call peref_case.check(...)", pytrace=False)
    return result


@pytest.fixture
def peref_case(request):
    """A golden case: `inputs`, `facts`, `options`, `words`, and `check(y=...)`, which fails where an
    output is wrong. A test that passes without a call of `check` fails.
    """
    return request.param.at(request.node.nodeid)
