#include "data/documents/document_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "data/documents/packing.h"

namespace spillway::data {
namespace {

class DocumentRows final : public TextRows {
 public:
  DocumentRows(const PreparedFile& file, i64 T, RowPacking packing, RowCounts& counts) : file_(file), T_(T), packing_(packing) {
    counts.sequence_length = T;
    std::vector<u32> lengths;
    std::vector<u32> words(static_cast<size_t>(T));
    for (i64 d = 0; d < file.counts().documents; ++d) {
      const i64 all = file.document_tokens(d), length = std::min(all, T);
      counts.cut_documents += all > T, counts.cut_tokens += all - length;
      const auto some = std::span(words).first(static_cast<size_t>(length));
      file.read_document(d, some);
      const i64 targets = targets_in(some);
      if (targets == 0) {
        ++counts.without_targets;
        continue;
      }
      kept_.push_back(static_cast<u32>(d));
      lengths.push_back(static_cast<u32>(length));
      const std::vector<i64> inner = file.inner_begins(d);
      counts.documents += 1 + std::ranges::count_if(inner, [&](i64 begin) { return begin < length; });
      counts.tokens += length, counts.targets += targets;
    }
    packed_ = rows_of(lengths);
    tokens_ = counts.tokens, counts.rows = packed_.rows();
  }

  i64 rows() const override { return packed_.rows(); }
  i64 tokens() const override { return tokens_; }
  bool packed() const override { return packing_ != RowPacking::off || file_.came_packed(); }

  std::string why_none() const override {
    const PreparedCounts& all = file_.counts();
    if (all.documents == 0)
      return all.without_targets == 0 ? fmt::format("expected rows with text in {}, got none", file_.name())
                                      : fmt::format("none of the {} rows of {} has a target, a token that counts in the loss",
                                                    all.without_targets, file_.name());
    std::vector<u32> words;
    i64 shortest = std::numeric_limits<i64>::max();
    for (i64 d = 0; d < all.documents; ++d) {
      words.resize(static_cast<size_t>(file_.document_tokens(d)));
      file_.read_document(d, words);
      const auto target = std::find_if(words.begin() + 1, words.end(), [](u32 word) { return (word & PreparedFile::kNoTarget) == 0; });
      shortest = std::min<i64>(shortest, target - words.begin() + 1);
    }
    return fmt::format(
        "the prompts of all {} rows of {} fill --sequence-length {}, so truncation leaves no target: give a --sequence-length of at least "
        "{}, at which one row keeps a target",
        all.documents, file_.name(), T_, shortest);
  }

  RowTokens read(i64 row, std::span<i32> tokens_T, std::span<i32> targets_T, std::span<i32> positions_T) const override {
    std::vector<u32> words(static_cast<size_t>(T_));
    size_t at = 0;
    i64 counted = 0;
    for (u32 i = packed_.begin[static_cast<size_t>(row)]; i < packed_.begin[static_cast<size_t>(row) + 1]; ++i) {
      const i64 document = kept_[packed_.documents[i]];
      const auto some = std::span(words).first(static_cast<size_t>(std::min(file_.document_tokens(document), T_)));
      file_.read_document(document, some);
      const std::vector<i64> inner = file_.inner_begins(document);
      auto next = inner.begin();
      i32 position = 0;
      for (size_t t = 0; t < some.size(); ++t, ++at) {
        if (next != inner.end() && *next == static_cast<i64>(t)) position = 0, ++next;
        tokens_T[at] = static_cast<i32>(some[t] & ~PreparedFile::kNoTarget);
        positions_T[at] = position++;
        const bool target = t + 1 < some.size() && (some[t + 1] & PreparedFile::kNoTarget) == 0;
        targets_T[at] = target ? static_cast<i32>(some[t + 1]) : kIgnoredTarget;
        counted += target;
      }
    }
    const auto tokens = static_cast<i64>(at);
    for (i32 position = 0; at < tokens_T.size(); ++at) tokens_T[at] = 0, targets_T[at] = kPaddingTarget, positions_T[at] = position++;
    return {tokens, counted};
  }

 private:
  PackedRows rows_of(std::span<const u32> lengths) const {
    switch (packing_) {
      case RowPacking::best_fit:
        return pack_documents(lengths, T_);
      case RowPacking::in_order:
        return pack_in_order(lengths, T_);
      case RowPacking::off:
        break;
    }
    return unpacked_documents(std::ssize(lengths));
  }

  // Counts the targets of a document, given its tokens as PreparedFile stores them. The first token is never a target.
  static i64 targets_in(std::span<const u32> words) {
    return std::count_if(words.begin() + 1, words.end(), [](u32 word) { return (word & PreparedFile::kNoTarget) == 0; });
  }

  const PreparedFile& file_;
  const i64 T_;
  const RowPacking packing_;
  std::vector<u32> kept_;
  PackedRows packed_;
  i64 tokens_ = 0;
};

}  // namespace

std::unique_ptr<TextRows> document_rows(const PreparedFile& file, i64 sequence_length, RowPacking packing, RowCounts& counts) {
  require(sequence_length > 0, "[data] expected rows of at least one token");
  return std::make_unique<DocumentRows>(file, sequence_length, packing, counts);
}

}  // namespace spillway::data
