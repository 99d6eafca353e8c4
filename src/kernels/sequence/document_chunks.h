// Cuts the rows of a batch into chunks for recurrences that are computed chunk by chunk (selective_scan.h, delta_rule.h). A chunk lies
// within one document: it begins at each position of a document that is a multiple of the chunk size, so results of a document do not
// depend on what lies beside it in its row. `positions_T` holds the int32 position of each element of one row in its document; null means
// that the row is one document that begins at position 0. CPU and GPU kernels call these functions. Legend: T = positions of a row.
#pragma once
#include "base/types.h"

namespace spillway::kernels {

/// Returns whether element t is the first one of its document. Element 0 of a row may continue a document whose state is given.
constexpr bool begins_document(const i32* positions_T, i64 t) { return t == 0 || (positions_T && positions_T[t] == 0); }

/// Returns whether a chunk of at most `size` elements begins at element t.
constexpr bool begins_chunk(const i32* positions_T, i64 t, i64 size) { return t == 0 || (positions_T ? positions_T[t] : t) % size == 0; }

/// Returns the first element in [t, limit) at which a chunk begins, or `limit` if there is none.
constexpr i64 next_chunk(const i32* positions_T, i64 t, i64 limit, i64 size) {
  while (t < limit && !begins_chunk(positions_T, t, size)) ++t;
  return t;
}

/// Returns the end of the chunk that begins at element t of a row of `length` elements. A chunk has at most `size` elements if the
/// positions of each document count up by one.
constexpr i64 chunk_end(const i32* positions_T, i64 t, i64 length, i64 size) {
  return next_chunk(positions_T, t + 1, t + size < length ? t + size : length, size);
}

/// Returns the first element of the chunk that ends before element `end`, which is above 0 and at most the length of the row.
constexpr i64 previous_chunk(const i32* positions_T, i64 end, i64 size) {
  i64 t = end - 1;
  while (!begins_chunk(positions_T, t, size)) --t;
  return t;
}

/// Returns how many states a row needs if a state is kept at the beginning of each chunk that continues a document, and the index of the
/// state of the chunk that begins at element t > 0. Such a chunk follows `size` elements of its own document (or, if the row begins within
/// a document, the only shorter chunk, at the row's beginning), so that no two chunks share an index.
constexpr i64 kept_states(i64 length, i64 size) { return ceil_div(length, size); }
constexpr i64 kept_state(i64 t, i64 size) { return t / size; }

}  // namespace spillway::kernels
