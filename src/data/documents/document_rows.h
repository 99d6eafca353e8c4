// Arranges tokenized documents in rows for the loader. A document longer than a row is truncated to the row's length.
#pragma once
#include <memory>

#include "data/documents/prepared_file.h"
#include "data/loader/samples.h"

namespace spillway::data {

/// Statistics of the rows, to be printed before training.
struct RowCounts {
  // Counts of rows, documents, tokens and targets. Tokens that truncation cut off do not count.
  i64 rows = 0, documents = 0, tokens = 0, targets = 0;
  // The documents and tokens that truncation affects: documents that were truncated, tokens that
  // were cut off, and documents that are left out because truncation removed all their targets.
  i64 cut_documents = 0, cut_tokens = 0, without_targets = 0;
  i64 sequence_length = 0;
  double padding() const { return rows > 0 ? 1 - static_cast<double>(tokens) / static_cast<double>(rows * sequence_length) : 0; }
};

/// Selects how documents share rows. A token attends only to tokens of its own document.
enum class RowPacking {
  // Each document has its own row, in the order of the file. Documents that one line of the data already packs together stay together.
  off,
  best_fit,  // documents are combined so that there is little padding; their order is lost (pack_documents)
  // Consecutive documents share rows, and the rows hold the documents in the order of the file (pack_in_order).
  in_order,
};

/// Returns the rows of a file of tokenized documents and fills `counts`. `file` must outlive the result.
std::unique_ptr<TextRows> document_rows(const PreparedFile& file, i64 sequence_length, RowPacking packing, RowCounts& counts);

}  // namespace spillway::data
