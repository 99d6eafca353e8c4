#include "data/tokenizer/hugging_face/hugging_face.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/utf8.h"

namespace spillway::data {
namespace {

const nlohmann::json& value_or_null(Fields& fields, const char* key) {
  static const nlohmann::json null;
  const nlohmann::json* found = fields.find(key);
  return found ? *found : null;
}

}  // namespace

/// Takes an idle Scratch (working memory) from the tokenizer's list, or makes a new one, and puts it back on destruction.
class HuggingFaceTokenizer::Borrowed {
 public:
  Borrowed(const HuggingFaceTokenizer& owner, WorkBudget& budget) : owner_(owner) {
    const std::lock_guard guard(owner_.lock_);
    if (!owner_.idle_.empty()) {
      scratch_ = std::move(owner_.idle_.back());
      owner_.idle_.pop_back();
    } else {
      scratch_ = std::make_unique<Scratch>();
    }
    scratch_->budget = &budget;
  }
  ~Borrowed() {
    // A Scratch (working memory) that grew for a large text is freed instead of put back.
    if (scratch_->symbols.capacity() + scratch_->heap.capacity() + scratch_->best.capacity() > kMostKept) return;
    const std::lock_guard guard(owner_.lock_);
    owner_.idle_.push_back(std::move(scratch_));
  }
  Borrowed(const Borrowed&) = delete;
  Borrowed& operator=(const Borrowed&) = delete;
  Scratch& get() { return *scratch_; }

 private:
  static constexpr size_t kMostKept = 1 << 20;
  const HuggingFaceTokenizer& owner_;
  std::unique_ptr<Scratch> scratch_;
};

struct HuggingFaceTokenizer::Output {
  WorkBudget& budget;
  Scratch& scratch;
  Encoded encoded;
  bool ranged;
  std::vector<ByteRange> of_piece;

  void put(i32 id, ByteRange range) {
    encoded.ids.push_back(id);
    if (ranged) encoded.ranges.push_back(range);
  }
};

HuggingFaceTokenizer::HuggingFaceTokenizer(const nlohmann::json& file, const JsonPlace& place) : file_(place.file) {
  Fields fields(file, place);
  fields.pass_over({"version", "truncation", "padding"});
  normalizers_ = read_normalizer(value_or_null(fields, "normalizer"), fields.place_of("normalizer"));
  pre_tokenizers_ = read_pre_tokenizer(value_or_null(fields, "pre_tokenizer"), fields.place_of("pre_tokenizer"));
  bool raw_bytes = !pre_tokenizers_.empty() && pre_tokenizers_.back()->maps_bytes();
  const bool one_mapping = std::ranges::count_if(pre_tokenizers_, [](const auto& step) { return step->maps_bytes(); }) == 1;
  raw_bytes = raw_bytes && one_mapping;
  model_ = read_model(fields.at("model", "an object"), fields.place_of("model"), raw_bytes);
  if (raw_bytes) pre_tokenizers_.pop_back();
  if (const auto* added = fields.find("added_tokens"))
    added_ = AddedTokens(*added, fields.place_of("added_tokens"), model_->vocabulary(), normalizers_);
  around_ = read_post_processor(value_or_null(fields, "post_processor"), fields.place_of("post_processor"));
  decoder_.emplace(value_or_null(fields, "decoder"), fields.place_of("decoder"));
  fields.refuse_the_rest();
  vocabulary_ = std::max(model_->vocabulary().bound(), added_.bound());
  for (const auto* ids : {&around_.before, &around_.behind}) {
    for (const i32 id : *ids) {
      if (id >= vocabulary_)
        refuse_value(fields.place_of("post_processor"), "ids below " + std::to_string(vocabulary_), std::to_string(id));
    }
  }
  pattern_ = pre_tokenizers_.size() == 1 ? pre_tokenizers_[0]->isolates() : nullptr;
  const bool plain_pieces = !added_.any(true) && (pre_tokenizers_.empty() || pattern_ != nullptr);
  plain_ = plain_pieces && normalizers_.empty();
  plain_ascii_ = plain_pieces && std::ranges::all_of(normalizers_, [](const auto& step) { return step->leaves_ascii(); });
  find_line_ends();
}

void HuggingFaceTokenizer::find_line_ends() {
  const bool kept = std::ranges::all_of(normalizers_, [](const auto& step) { return step->keeps_line_ends(); });
  const auto none = [&](LineEnds kind) {
    return std::ranges::none_of(pre_tokenizers_, [&](const auto& step) { return step->line_ends() == kind; });
  };
  cut_at_line_ends_ = kept && !added_.touch_line_ends() && none(LineEnds::hidden) && !none(LineEnds::cut);
}

std::vector<i32> HuggingFaceTokenizer::encode(std::string_view text, bool with_special) const {
  WorkBudget budget(file_, text.size());
  Borrowed scratch(*this, budget);
  Output out{budget, scratch.get(), {}, false, {}};
  encode_into(text, with_special, out);
  return std::move(out.encoded.ids);
}

Encoded HuggingFaceTokenizer::encode_with_ranges(std::string_view text, bool with_special) const {
  WorkBudget budget(file_, text.size());
  Borrowed scratch(*this, budget);
  Output out{budget, scratch.get(), {}, true, {}};
  encode_into(text, with_special, out);
  return std::move(out.encoded);
}

void HuggingFaceTokenizer::encode_into(std::string_view text, bool with_special, Output& out) const {
  if (text.size() >= static_cast<size_t>(std::numeric_limits<i32>::max()) / 4) {
    throw Error(ErrorCode::data,
                "[tokenizer] expected a text of less than 512 MiB, got " + std::to_string(text.size()) + " bytes; cut it into documents");
  }
  const auto around = [&](const std::vector<i32>& ids, i64 at) {
    for (const i32 id : ids) out.put(id, {at, at});
  };
  if (with_special) around(around_.before, 0);
  if (is_utf8(text)) {
    encode_utf8(text, out);
  } else {
    encode_broken(text, out);
  }
  if (with_special) around(around_.behind, static_cast<i64>(text.size()));
}

void HuggingFaceTokenizer::encode_utf8(std::string_view text, Output& out) const {
  std::vector<Span> parts;
  find_added(text, false, out, parts);
  for (const Span& part : parts) {
    const auto begin = static_cast<i64>(part.begin);
    const std::string_view stretch = text.substr(part.begin, part.end - part.begin);
    if (part.id >= 0) {
      out.put(part.id, {begin, static_cast<i64>(part.end)});
    } else if (plain_ || (plain_ascii_ && is_ascii(stretch))) {
      encode_plain(stretch, begin, out);
    } else {
      encode_stretch(aligned(stretch, begin, out.ranged, out.budget), begin == 0, out);
    }
  }
}

void HuggingFaceTokenizer::encode_broken(std::string_view text, Output& out) const {
  const AlignedText whole = aligned(text, 0, out.ranged, out.budget);
  std::vector<Span> parts;
  find_added(whole.text, false, out, parts);
  for (const Span& part : parts) {
    if (part.id >= 0) {
      out.put(part.id, out.ranged ? origin_of(whole, part.begin, part.end) : ByteRange{});
      continue;
    }
    encode_stretch(part_of(whole, part.begin, part.end), part.begin == 0, out);
  }
}

void HuggingFaceTokenizer::find_added(std::string_view text, bool normalized, Output& out, std::vector<Span>& into) const {
  out.budget.enter("added_tokens");
  added_.find(text, normalized, out.budget, into);
}

void HuggingFaceTokenizer::encode_stretch(AlignedText stretch, bool at_start, Output& out) const {
  Pieces pieces{std::move(stretch), {}, at_start};
  out.budget.enter("normalizer");
  normalize(normalizers_, pieces.text);
  find_added(pieces.text.text, true, out, pieces.spans);
  out.budget.enter("pre_tokenizer");
  for (const auto& step : pre_tokenizers_) {
    out.budget.charge(WorkBudget::kCallCost + pieces.text.text.size() + pieces.spans.size());
    (*step)(pieces);
  }
  out.budget.enter("model");
  encode_pieces(pieces, out);
}

void HuggingFaceTokenizer::encode_plain(std::string_view stretch, i64 begin, Output& out) const {
  const auto piece = [&](size_t from, size_t to) {
    if (from == to) return;
    out.of_piece.clear();
    model_->encode(stretch.substr(from, to - from), out.scratch, out.encoded.ids, out.ranged ? &out.of_piece : nullptr);
    const i64 base = begin + static_cast<i64>(from);
    for (const ByteRange& range : out.of_piece) out.encoded.ranges.push_back({base + range.begin, base + range.end});
  };
  out.budget.enter("pre_tokenizer or model");
  size_t behind = 0;
  if (pattern_) {
    Regex::Walk walk(*pattern_, stretch, out.budget);
    while (walk.next()) {
      piece(behind, walk.begin());
      piece(walk.begin(), walk.end());
      behind = walk.end();
    }
  }
  piece(behind, stretch.size());
}

void HuggingFaceTokenizer::encode_pieces(const Pieces& pieces, Output& out) const {
  const std::string_view text = pieces.text.text;
  for (const Span& span : pieces.spans) {
    if (span.id >= 0) {
      out.put(span.id, out.ranged ? origin_of(pieces.text, span.begin, span.end) : ByteRange{});
      continue;
    }
    out.of_piece.clear();
    model_->encode(text.substr(span.begin, span.end - span.begin), out.scratch, out.encoded.ids, out.ranged ? &out.of_piece : nullptr);
    for (const ByteRange& range : out.of_piece) {
      const auto from = span.begin + static_cast<size_t>(range.begin), to = span.begin + static_cast<size_t>(range.end);
      out.encoded.ranges.push_back(origin_of(pieces.text, from, to));
    }
  }
}

/// Returns the text that the decoder gets for a token. The text is empty for a token that is not shown.
std::string_view HuggingFaceTokenizer::shown(i32 id, bool skip_special) const {
  const AddedToken* added = added_.find(id);
  const std::string_view text = added ? std::string_view(added->text) : model_->vocabulary().text(id);
  return skip_special && added_.is_special(text) ? std::string_view() : text;
}

class HuggingFaceTokenizer::Stream : public StreamDecoder {
 public:
  Stream(const HuggingFaceTokenizer& tokenizer, bool skip_special)
      : tokenizer_(tokenizer), skip_special_(skip_special), budget_(tokenizer.file_, 0), chain_(*tokenizer.decoder_, budget_, text_) {
    budget_.enter("decoder");
  }
  std::string put(i32 id) override {
    feed(id);
    return std::exchange(text_, {});
  }
  std::string finish() override {
    chain_.finish();
    return std::exchange(text_, {});
  }
  void feed(i32 id) {
    const std::string_view text = tokenizer_.shown(id, skip_special_);
    budget_.allow(text.size());
    if (!text.empty()) chain_.put(text);
  }

 private:
  const HuggingFaceTokenizer& tokenizer_;
  bool skip_special_;
  std::string text_;
  WorkBudget budget_;
  Decoder::Chain chain_;
};

std::string HuggingFaceTokenizer::decode(std::span<const i32> ids, bool skip_special) const {
  Stream stream(*this, skip_special);
  for (const i32 id : ids) stream.feed(id);
  return stream.finish();
}

std::unique_ptr<StreamDecoder> HuggingFaceTokenizer::stream_decoder(bool skip_special) const {
  return std::make_unique<Stream>(*this, skip_special);
}

std::optional<i32> HuggingFaceTokenizer::id_of(std::string_view token) const {
  i32 id = added_.id_of(token);
  if (id == kNoToken) id = model_->vocabulary().find(token);
  return id == kNoToken ? std::nullopt : std::optional(id);
}

std::string HuggingFaceTokenizer::token(i32 id) const { return std::string(shown(id, false)); }

i64 HuggingFaceTokenizer::last_cut(std::string_view text) const {
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  for (size_t at = cut_at_line_ends_ ? text.size() : 0; at-- > 1;) {
    if (text[at] == '\n' && is_letter(text[at - 1])) return static_cast<i64>(at);
  }
  return 0;
}

}  // namespace spillway::data
