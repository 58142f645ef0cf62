"""Rows of a table."""

from peref.ops.rows import add_rows
from peref.tape import Op
from peref.xp import namespace


def take_forward(table, index):
    """The rows [...,C] of table [V,C] that the whole numbers index [...] name. A row that is named twice gets
    both gradients.
    """
    return table[index], (table.shape, index)


def take_backward(saved, dy):
    """The gradient of the table [V,C]: each row's sum over the places that named it."""
    shape, index = saved
    dtable = namespace(dy).zeros(shape, dy.dtype)
    add_rows(dtable, index, dy)
    return dtable, None


take = Op(take_forward, take_backward)
