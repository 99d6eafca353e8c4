// Arranges prepared documents in rows for the loader. A document longer than a row is truncated to the row's length.
#pragma once
#include <memory>

#include "data/documents/prepared_file.h"
#include "data/samples.h"

namespace spillway::data {

/// Statistics of the rows, to be printed before training.
struct RowCounts {
  // `tokens` counts only tokens that are in rows.
  i64 rows = 0, documents = 0, tokens = 0, targets = 0;
  // `without_targets` counts documents that are left out because truncation removed all their targets.
  i64 cut_documents = 0, cut_tokens = 0, without_targets = 0;
  i64 sequence_length = 0;
  double padding() const { return rows > 0 ? 1 - static_cast<double>(tokens) / static_cast<double>(rows * sequence_length) : 0; }
};

/// How documents share rows. Attention does not cross the borders between documents in a row.
enum class RowPacking {
  // Every document has its own row, in the order of the file. Documents that came packed in one line stay together.
  off,
  best_fit,  // documents are combined to minimise padding, in no particular order (pack_documents)
  // Neighbours share rows: rows 0, 1, 2 … hold the documents in the order of the file (pack_in_order).
  in_order,
};

/// Returns the rows of a prepared file and fills `counts`. `file` must outlive the result.
std::unique_ptr<TextRows> document_rows(const PreparedFile& file, i64 sequence_length, RowPacking packing, RowCounts& counts);

}  // namespace spillway::data
