"""Views of memory that is kept elsewhere, for nothing: numba's own count references and try shapes at each slice.

A layer takes a dozen of them, which at four rows took longer than its arithmetic. They own nothing, so they must not
outlive the array that they look into.
"""

from typing import Any

from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import populate_array


@intrinsic
def matrix(context: Any, memory: Any, start: Any, rows: Any, columns: Any) -> Any:
    """[rows, columns] of a flat array, from `start` on."""
    result = types.Array(memory.dtype, 2, "C")
    return result(memory, types.intp, types.intp, types.intp), _generate


@intrinsic
def vector(context: Any, memory: Any, start: Any, size: Any) -> Any:
    """[size] of a flat array, from `start` on."""
    return types.Array(memory.dtype, 1, "C")(memory, types.intp, types.intp), _generate


def _generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    memory, start, *shape = arguments
    source = context.make_array(signature.args[0])(context, builder, memory)
    size = context.get_constant(types.intp, context.get_abi_sizeof(context.get_data_type(signature.args[0].dtype)))
    strides = [size] if len(shape) == 1 else [builder.mul(shape[1], size), size]
    view = context.make_array(signature.return_type)(context, builder)
    populate_array(
        view,
        data=builder.gep(source.data, [start]),
        shape=cgutils.pack_array(builder, shape),
        strides=cgutils.pack_array(builder, strides),
        itemsize=size,
        meminfo=None,
    )
    return view._getvalue()
