"""The tests that compute, once more without AVX-512, which most processors do not have.

NumPy, its BLAS and the kernels are told not to use it.

python tests/without_avx512.py -n auto          what follows the file's name goes to pytest

Where there is no AVX-512 nothing is repeated: the tests have run without it.
"""

import contextlib
import ctypes
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np

from peref.backends.numba import host

HERE = Path(__file__).resolve().parent
AVX512, AVX = "avx512|avx10", "avx|fma"  # how LLVM's names of features begin
NUMPYS = ("AVX512", "AVX10", "X86_V4")  # and NumPy's; the last since 2.4
NARROW = ("Haswell", "Zen")  # the cores of OpenBLAS without AVX-512 that a processor with it may be given

# test_NAME.py of text, files, processes and pictures, and of bugs that are planted and found: these are far
# from a rounding. The CUDA kernels are compiled by g++, for every processor. cupy: the plain ops, over arrays
# that are NumPy's; step_audit: counts; options: what is finite or refused; compare, imported, results,
# search, two_configs, warm_start: reports, files and words of runs, whose numbers test_train and
# test_evaluate hold.
NOT_COMPUTING = (
    *("api", "benchmarks", "bugs", "check", "ci", "cli", "cli_tasks", "completion", "config", "contributing"),
    *("data", "declared", "demands", "diagnosis", "effects", "exercises", "fake_cupy", "fake_device"),
    *("families", "faults", "formulas", "function", "holes", "hooks", "hostile", "huggingface", "kept"),
    *(
        "layers",
        "lazy",
        "listed_runs",
        "making",
        "matrix",
        "mutants",
        "names",
        "own",
        "own_files",
        "own_laws",
    ),
    *("parts", "pictures", "planted", "plugin", "readme", "recipes", "refusals", "run_report", "runners"),
    *("runners_apart", "runs", "schema", "side_by_side", "spec", "speed", "store", "style", "surroundings"),
    *("traces_named", "unexplained", "xp", "backends", "memory", "sweep"),
    *(
        "cupy",
        "step_audit",
        "options",
        "compare",
        "imported",
        "results",
        "search",
        "two_configs",
        "warm_start",
    ),
    *(path.stem.removeprefix("test_") for path in HERE.glob("test_cuda_*.py")),
)
NOT_AGAIN = (
    "tests/test_numba.py::test_the_narrowest_vectors",  # narrower itself
    # derivatives beside differences in float64, to 1e-7: repeated of every op (test_ops) and every encoding
    # (test_encodings), and not of what is made of these, nor of each value of an option
    "tests/test_block.py::test_every_gradient_is_that_of_differences",
    "tests/test_claims.py::test_gradients_in_all_that_is_claimed",
    "tests/test_combination.py::test_gradients",
    "tests/test_direct.py::test_gradient_of_attention",
    "tests/test_direct.py::test_gradient_of_bias",
    "tests/test_direct.py::test_gradient_of_rotate",
    "tests/test_encodings.py::test_gradient_behind_a_cache",
    "tests/test_encodings.py::test_gradient_of_every_choice",
    "tests/test_porting.py::test_gradients_arrive_under_their_names",
    "tests/test_pyramid.py::test_gradients_and_decoding_of_every_option",
    "tests/test_sharpened.py::test_gradients_of_all_of_them",
    "tests/test_ties.py::test_gradient_where_parameters_begin",
    # planted mistakes that are found, far from a rounding (those near one are repeated, and so are the tests
    # whose whole point is that an honest engine passes), and bits of two runs that go the same way
    "tests/test_encodings.py::test_a_spoilt_backward_of_an_encoding_is_found",
    "tests/test_golden_levels.py::test_a_flag_stands_where_its_mutant_fails",
    "tests/test_handed_states.py::test_a_wrong_state_is_named",
    "tests/test_trace_diff.py::test_a_missing_weight_is_unknown_and_no_error",
    "tests/test_trace_diff.py::test_a_number_is_fitted",
    "tests/test_trace_diff.py::test_a_reading_is_offered_once",
    "tests/test_trace_diff.py::test_another_config_is_named",
    "tests/test_trace_diff.py::test_another_tensor_or_shape_under_a_name",
    "tests/test_trace_diff.py::test_another_way_to_compute_is_named",
    "tests/test_trace_diff.py::test_few_tensors_are_enough",
    "tests/test_trace_diff.py::test_other_parameters_are_named",
    "tests/test_trace_diff.py::test_positions_off_by_one_and_sections_in_another_order_are_named",
    "tests/test_trace_diff.py::test_the_command",
    "tests/test_trace_diff.py::test_what_the_reference_has_not_is_not_missed",
    "tests/test_trace_pair.py::test_the_first_that_differs_is_named",
    "tests/test_train.py::test_a_stopped_run_goes_on_to_the_same_bits",
    # files, words and bytes of golden files: their numbers are repeated
    "tests/test_golden.py::test_flags_are_explained_and_used",
    "tests/test_golden.py::test_made_twice_the_bytes_are_the_same",
    "tests/test_golden.py::test_every_encoding_has_every_level",
    "tests/test_golden.py::test_golden_show_narrows",
    "tests/test_golden.py::test_the_files_are_those_of_the_recipes",
    "tests/test_golden_levels.py::test_core_and_full_are_two_sets",
    # over a fake CuPy, whose arrays are NumPy's: the same arithmetic as beside it
    "tests/test_encodings.py::test_on_the_fake_cupy",
    "tests/test_porting.py::test_on_the_fake_cupy",
    # the text of files, and what is refused in words
    "tests/test_direct.py::test_refused_in_words",
    "tests/test_encodings.py::test_options_that_make_no_sense",
    "tests/test_member.py::test_no_option_has_the_name_of_a_setting",
    "tests/test_numba_rules.py::test_every_function_is_compiled_with_the_same_options",
    "tests/test_numba_rules.py::test_no_product_of_matrices_is_numpys",
    "tests/test_porting.py::test_what_cannot_be_expressed_is_refused",
    "tests/test_positions.py::test_who_may_have_them",
)


def computing() -> list[str]:
    """The files of tests to be repeated: all others, so that a new one is among them."""
    every = sorted(path.stem.removeprefix("test_") for path in HERE.glob("test_*.py"))
    return [f"tests/test_{name}.py" for name in every if name not in NOT_COMPUTING]


def core() -> str:
    """The processor whose code OpenBLAS runs; "" where the BLAS is another, or the system does not say."""
    with contextlib.suppress(OSError):
        for path in set(re.findall(r"/\S*openblas\S*", Path("/proc/self/maps").read_text())):
            library = ctypes.CDLL(path)
            for name in ("scipy_openblas%s64_", "openblas%s64_", "openblas%s"):
                if function := getattr(library, name % "_get_corename", None):
                    function.restype = ctypes.c_char_p
                    return function().decode()
    return ""


def blas() -> str:
    """What NumPy was built with for products of matrices."""
    return np.show_config(mode="dicts").get("Build Dependencies", {}).get("blas", {}).get("name", "")


def wide() -> bool:
    """Whether the processor has AVX-512, whatever this process was told; no where the system does not say."""
    with contextlib.suppress(OSError):
        return "avx512f" in Path("/proc/cpuinfo").read_text().split()
    return False


def without(features: str, which: str) -> str:
    """LLVM's list of features with those off whose names begin so."""
    return re.sub(rf"\+(?={which})", "-", features)


def in_use() -> dict[str, str]:
    """What this process computes with AVX-512: the variable that switches it off, and its value."""
    found = {}
    every = np.show_config(mode="dicts")["SIMD Extensions"].get("found", [])
    if names := [name for name in every if name.startswith(NUMPYS)]:
        found["NPY_DISABLE_CPU_FEATURES"] = " ".join(names)
    if wide() and "openblas" in blas() and core() not in NARROW:  # one that cannot be seen may be wide too
        found["OPENBLAS_CORETYPE"] = "Haswell"
    if host.LANES == 16:
        found["NUMBA_CPU_FEATURES"] = without(host.features(), AVX512)
    return found


def main(arguments: list[str]) -> int:
    off = in_use()
    if wide() and "openblas" not in blas():
        print(
            f"NumPy's BLAS is {blas() or 'unknown'}: whether it uses AVX-512 cannot be told, nor switched off"
        )
    if not off:
        print("no AVX-512 is in use here: the tests have run without it")
        return 0
    env = os.environ | off
    look = [sys.executable, "-c", "import without_avx512; print(*without_avx512.in_use())"]
    left = subprocess.run(look, cwd=HERE, env=env, capture_output=True)
    if left.returncode or left.stdout.strip():
        print(f"AVX-512 is still in use, although these were set: {' '.join(off)}", file=sys.stderr)
        print((left.stdout + left.stderr).decode(), file=sys.stderr)
        return 1
    left_out = [f"--deselect={test}" for test in NOT_AGAIN]
    command = [sys.executable, "-m", "pytest", *left_out, *arguments, *computing()]
    return subprocess.run(command, cwd=HERE.parent, env=env).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
