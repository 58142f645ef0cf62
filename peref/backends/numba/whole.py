"""A kernel becomes machine code once, with all that it calls in one module.

numba has a library of code for every function. It optimises each at once, with all that it calls, and makes
machine code of it, and does so again in every library that calls it; but only kernels are ever run. Here a
library without an entry for Python stays as it is until a kernel links it.

This stands on classes of numba's that are not documented. Where one of the names in USED has gone, numba
compiles as it always does: that takes longer and changes no result.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

from numba.core.codegen import Codegen, CodeLibrary, JITCodeLibrary
from numba.core.compiler_lock import global_compiler_lock
from numba.core.environment import lookup_environment

USED = {
    "_codegen",
    "_final_module",
    "_finalized",
    "_linking_libraries",
    "_get_module_for_linking",
    "add_linking_library",
    "codegen",
    "finalize",
    "get_pointer_to_function",
}


class Whole(JITCodeLibrary):
    """The code of one function, as LLVM's representation until machine code is asked for."""

    own = None  # a copy of its module before anything is linked to it, for others to link

    def add_linking_library(self, library: CodeLibrary) -> None:
        if isinstance(library, Whole):
            self._linking_libraries.append(library)
        else:
            super().add_linking_library(library)

    def for_linking(self) -> Any:
        """Its own functions: left out where nothing calls them, as what is linked after this may not yet."""
        if self.own is None:
            self.own = self._final_module.clone()
            for function in self.own.functions:
                if not function.is_declaration and function.linkage.name == "external":
                    function.linkage = "linkonce_odr"
        return self.own

    def callees(self, seen: set[CodeLibrary]) -> list[CodeLibrary]:
        """All that it links and is not in `seen`, which they are added to; who calls after whom it calls."""
        found: list[CodeLibrary] = []
        for one in self._linking_libraries:
            if one not in seen:
                seen.add(one)
                found += one.callees(seen) if isinstance(one, Whole) and not one._finalized else []
                found.append(one)
        return found

    def finalize(self) -> None:
        """Its module gets all that it links, each library once, callers first; then as numba does."""
        found = self.callees({self})
        for library in reversed(found):
            if not library._finalized:
                self._final_module.link_in(library.for_linking(), preserve=True)
        self._linking_libraries = [library for library in found if library._finalized]
        super().finalize()
        for variable in self._final_module.global_variables:
            if environment := lookup_environment(variable.name):
                self._codegen.set_env(variable.name, environment)

    def get_pointer_to_function(self, name: str) -> int:
        """0 where there is none of that name, and then nothing is compiled."""
        here = self._finalized or name in {function.name for function in self._final_module.functions}
        return super().get_pointer_to_function(name) if here else 0

    @property
    def codegen(self) -> Any:
        """Whom numba tells where the environment of a function is: it has no address yet."""
        return self._codegen if self._finalized else self

    def set_env(self, name: str, environment: Any) -> None:
        """Nothing: `finalize` does it."""


@contextlib.contextmanager
def compiled_once(codegen: Codegen) -> Iterator[None]:
    """What numba compiles meanwhile is Whole; what other threads would compile waits."""
    with global_compiler_lock, contextlib.ExitStack() as stack:
        before = codegen._library_class
        if not USED - {*dir(JITCodeLibrary), *vars(before(codegen, "probe"))}:
            stack.callback(setattr, codegen, "_library_class", before)
            codegen._library_class = Whole
        yield
