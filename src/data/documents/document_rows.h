// Documents that were prepared, in rows: what a loader deals out of them. A document longer than a row is cut at its end.
#pragma once
#include <memory>

#include "data/documents/prepared_file.h"
#include "data/samples.h"

namespace spillway::data {

/// What rows are made of, to be said before training.
struct RowCounts {
  i64 rows = 0, documents = 0, tokens = 0, targets = 0;        // tokens: those in rows
  i64 cut_documents = 0, cut_tokens = 0, without_targets = 0;  // without_targets: cut so that nothing counts any more, and left out
  i64 sequence_length = 0;
  double padding() const { return rows > 0 ? 1 - static_cast<double>(tokens) / static_cast<double>(rows * sequence_length) : 0; }
};

/// Which documents share a row, with borders between them that nothing crosses.
enum class RowPacking {
  off,       // none: each, or those that came packed in one line, has a row of its own, in the order of the file
  best_fit,  // those that leave the least padding, in no order (pack_documents)
  in_order,  // neighbours: the documents of rows 0, 1, 2 … are those of the file, in its order (pack_in_order)
};

/// `file` must outlive it.
std::unique_ptr<TextRows> document_rows(const PreparedFile& file, i64 sequence_length, RowPacking packing, RowCounts& counts);

}  // namespace spillway::data
