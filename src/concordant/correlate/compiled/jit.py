"""How the loops are compiled: once, cached on disk, and anew when any of their sources changes.

Numba's own cache looks only at the file of the function itself, so that a change in a function that
is called would leave the caller's old code in use. Here the stamp is a digest of this whole folder.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from importlib.resources import files
from typing import Any

from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic


def _digest() -> str:
    digest = hashlib.blake2b(digest_size=16)
    folder = files("concordant.correlate.compiled")
    for source in sorted(folder.iterdir(), key=lambda one: one.name):
        if source.name.endswith(".py"):
            digest.update(source.read_bytes())
    return digest.hexdigest()


_STAMP = _digest()


def compiled(function: Callable[..., Any]) -> Any:
    """A function of these loops in machine code."""
    return _stamped(njit(cache=True)(function))


def inlined(function: Callable[..., Any]) -> Any:
    """The same for a small function that is copied into its callers."""
    return _stamped(njit(cache=True, inline="always")(function))


def folded(function: Callable[..., Any]) -> Any:
    """The same for a larger one that most events go through: LLVM copies it where it is called.

    A call would save registers, and read again what a caller has read from the plan before.
    """
    return _stamped(njit(cache=True, forceinline=True)(function))


def _stamped(dispatcher: Any) -> Any:
    # Numba has no public way to say what a cache depends on; a release that moves this attribute
    # fails the test that watches over it, and falls back to Numba's own stamp here.
    cache_file = getattr(getattr(dispatcher, "_cache", None), "_cache_file", None)
    if cache_file is not None and hasattr(cache_file, "_source_stamp"):
        cache_file._source_stamp = _STAMP
    return dispatcher


def _pointer_to(kind: Any) -> Any:
    """An address as something to index: a call then passes one word, where an array takes seven."""

    @intrinsic
    def convert(typingctx: Any, address: Any) -> Any:
        del typingctx, address

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.inttoptr(args[0], context.get_value_type(signature.return_type))

        return types.CPointer(kind)(types.int64), codegen

    return convert


pointer_at = _pointer_to(types.int64)
int32_pointer_at = _pointer_to(types.int32)
float_pointer_at = _pointer_to(types.float64)
bool_pointer_at = _pointer_to(types.uint8)


@intrinsic
def prefetch(typingctx: Any, words: Any, index: Any) -> Any:  # pragma: no cover - compiled
    """Ask for words[index] to be brought near: it will be read soon, and nothing waits for it."""
    del typingctx

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        address = builder.gep(args[0], [args[1]])
        number = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [address.type, number, number, number])
        function = builder.module.declare_intrinsic("llvm.prefetch", [address.type], kind)
        # To be read (0), kept in all caches (3), data and not code (1).
        builder.call(function, [address, number(0), number(3), number(1)])
        return context.get_dummy_value()

    return types.void(words, index), codegen


@inlined
def pointer(array):
    """The first element of an int64 array; the array must outlive its use."""
    return pointer_at(array.ctypes.data)
