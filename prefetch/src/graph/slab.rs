//! A vector that grows by pieces: no element ever moves, so that growing to gigabytes never copies them.

use alloc::vec::Vec;

const PIECE_SHIFT: u32 = 14;
/// Elements in one piece.
pub(super) const PIECE: usize = 1 << PIECE_SHIFT;

#[derive(Clone, Debug, Default)]
pub(super) struct Slab<T> {
    pieces: Vec<Vec<T>>,
    len: usize,
}

impl<T> Slab<T> {
    pub(super) const fn new() -> Self {
        Self {
            pieces: Vec::new(),
            len: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn bytes(&self) -> usize {
        self.pieces.len() * PIECE * size_of::<T>()
    }

    pub(super) fn push(&mut self, value: T) -> u32 {
        if self.len == self.pieces.len() * PIECE {
            self.pieces.push(Vec::with_capacity(PIECE));
        }
        self.pieces[self.len >> PIECE_SHIFT].push(value);
        self.len += 1;
        self.len as u32 - 1
    }

    /// The elements of one piece; empty beyond the last.
    pub(super) fn piece(&self, piece: usize) -> &[T] {
        self.pieces.get(piece).map_or(&[], Vec::as_slice)
    }
}

impl<T> core::ops::Index<u32> for Slab<T> {
    type Output = T;

    fn index(&self, index: u32) -> &T {
        &self.pieces[index as usize >> PIECE_SHIFT][index as usize & (PIECE - 1)]
    }
}

impl<T> core::ops::IndexMut<u32> for Slab<T> {
    fn index_mut(&mut self, index: u32) -> &mut T {
        &mut self.pieces[index as usize >> PIECE_SHIFT][index as usize & (PIECE - 1)]
    }
}
