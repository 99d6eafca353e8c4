// Decides which documents share a row (sequence packing). Pure functions.
#pragma once
#include <span>
#include <vector>

#include "base/types.h"

namespace spillway::data {

/// Documents arranged in rows: row r holds documents[begin[r]] … documents[begin[r + 1] - 1].
struct PackedRows {
  std::vector<u32> documents;
  std::vector<u32> begin;
  i64 rows() const { return std::ssize(begin) - 1; }
};

/// Packs documents of the given lengths into rows of `row_tokens` tokens by best fit decreasing. The longest document
/// is packed first. Each document goes into the fullest row in which it fits; if there is none, into a new row. Each
/// length must be above 0 and at most `row_tokens`. If the fewest possible rows are n, the result has at most 11/9 n
/// + 4 rows (Johnson et al., SIAM J. Comput. 3(4), 1974). Then the rows are shuffled, so that their order does not
/// depend on how full they are. Equal lengths always give equal results. There may be at most 2^32 - 2 documents.
PackedRows pack_documents(std::span<const u32> lengths, i64 row_tokens);
/// Packs the documents in their given order: each goes into the current row if it fits, and
/// begins the next row if it does not. The result has more padding than that of pack_documents.
PackedRows pack_in_order(std::span<const u32> lengths, i64 row_tokens);
/// Gives each document its own row, in the given order.
PackedRows unpacked_documents(i64 documents);

}  // namespace spillway::data
