// Which documents share a row. A pure function.
#pragma once
#include <span>
#include <vector>

#include "base/types.h"

namespace spillway::data {

/// Rows of documents: those of row r are documents[begin[r]] … documents[begin[r + 1] - 1].
struct PackedRows {
  std::vector<u32> documents;
  std::vector<u32> begin;
  i64 rows() const { return std::ssize(begin) - 1; }
};

/// Documents of these lengths, each at most `row_tokens` and above 0, in rows of so many tokens: the longest first, each into the fullest
/// row that has room for it, else into a new one (best fit decreasing; Johnson et al., SIAM J. Comput. 3(4), 1974: at most 11/9 of the
/// fewest rows and 4). Rows are then put in an order that tells nothing of their lengths, the same for the same lengths. At most 2^32 - 2
/// documents.
PackedRows pack_documents(std::span<const u32> lengths, i64 row_tokens);
/// The same documents in their order: each goes into the last row where it fits, else it begins the next one. Rows have more padding than
/// those of pack_documents.
PackedRows pack_in_order(std::span<const u32> lengths, i64 row_tokens);
/// Each document a row of its own, in their order.
PackedRows unpacked_documents(i64 documents);

}  // namespace spillway::data
