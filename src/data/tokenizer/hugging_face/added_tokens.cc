#include "data/tokenizer/hugging_face/added_tokens.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/utf8.h"
#include "data/text/unicode.h"

namespace spillway::data {
namespace {

bool ends_with_word(std::string_view text) {
  if (text.empty()) return false;
  size_t at = last_character(text);
  return is_word(next_code(text, at));
}

bool starts_with_word(std::string_view text) {
  size_t at = 0;
  return !text.empty() && is_word(next_code(text, at));
}

size_t spaces_at_end(std::string_view text) {
  size_t end = text.size();
  while (end > 0) {
    const size_t last = last_character(text.substr(0, end));
    size_t at = last;
    if (!is_white_space(next_code(text, at))) break;
    end = last;
  }
  return end;
}

size_t spaces_at_start(std::string_view text) {
  size_t end = 0;
  for (size_t at = 0; at < text.size(); end = at) {
    if (!is_white_space(next_code(text, at))) break;
  }
  return end;
}

}  // namespace

AddedTokens::AddedTokens(const nlohmann::json& value, const JsonPlace& place, const Vocabulary& model, const Normalizers& normalizers) {
  if (!value.is_array()) refuse_json(place, "an array", value);
  WorkBudget budget(place.file, 0);
  budget.enter("normalizer, for added_tokens,");
  for (const auto& entry : value) {
    Fields fields(entry, place);
    AddedToken token;
    token.text = fields.text("content");
    token.id = static_cast<i32>(fields.number("id", 0, std::numeric_limits<i32>::max() - 1));
    token.special = fields.flag("special", false);
    token.single_word = fields.flag("single_word", false);
    token.lstrip = fields.flag("lstrip", false);
    token.rstrip = fields.flag("rstrip", false);
    token.normalized = fields.flag("normalized", !token.special);
    fields.refuse_the_rest();
    if (token.text.empty()) continue;
    check_id(token, place, model);
    std::string form = token.text;
    if (token.normalized) {
      budget.allow(token.text.size());
      AlignedText text{token.text, false, {}, &budget};
      normalize(normalizers, text);
      form = text.text;
    }
    touch_line_ends_ |= token.rstrip || form.find('\n') != std::string::npos;
    OfText& of_text = by_text_[token.text];
    of_text = {token.id, of_text.special || token.special};
    by_id_[token.id] = tokens_.size();
    bound_ = std::max(bound_, static_cast<i64>(token.id) + 1);
    if (!form.empty()) {
      (token.normalized ? normalized_ : plain_).add(form, token.id);
      (token.normalized ? normalized_starts_ : plain_starts_).at[static_cast<unsigned char>(form[0])] = true;
      (token.normalized ? any_normalized_ : any_plain_) = true;
    }
    tokens_.push_back(std::move(token));
  }
}

void AddedTokens::check_id(const AddedToken& token, const JsonPlace& place, const Vocabulary& model) const {
  const auto known = by_text_.find(token.text);
  const i32 in_model = model.find(token.text);
  const i64 expected = known != by_text_.end() ? known->second.id : in_model != kNoToken ? in_model : std::max(bound_, model.size());
  if (token.id != expected) {
    refuse_value(place, "the id " + std::to_string(expected) + " for " + nlohmann::json(token.text).dump(-1, ' ', true),
                 std::to_string(token.id));
  }
}

void AddedTokens::find(std::string_view text, bool normalized, WorkBudget& budget, std::vector<Span>& into) const {
  const Trie& trie = normalized ? normalized_ : plain_;
  const auto& starts = (normalized ? normalized_starts_ : plain_starts_).at;
  size_t done = 0;
  for (size_t at = 0; any(normalized) && at < text.size();) {
    if (!starts[static_cast<unsigned char>(text[at])]) {
      ++at;
      continue;
    }
    size_t length = 0;
    i32 id = kNoToken;
    const size_t looked_at = trie.prefixes(text.substr(at), [&](size_t bytes, i32 found) { length = bytes, id = found; });
    budget.charge(Trie::kStepCost * looked_at);
    if (length == 0) {
      ++at;
      continue;
    }
    size_t begin = at, end = at + length;
    at = end;
    const AddedToken& token = *find(id);
    if (token.single_word && (ends_with_word(text.substr(0, begin)) || starts_with_word(text.substr(end)))) continue;
    if (token.lstrip && begin > done) begin = done + spaces_at_end(text.substr(done, begin - done));
    // the previous added token may already have taken the white space before this one
    if (token.lstrip) begin = std::min(std::max(begin, done), end);
    if (token.rstrip) end += spaces_at_start(text.substr(end));
    budget.charge(end - begin);
    if (done < begin) into.push_back({done, begin});
    into.push_back({begin, end, id});
    done = end;
  }
  if (done < text.size()) into.push_back({done, text.size()});
}

const AddedToken* AddedTokens::find(i32 id) const {
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : &tokens_[found->second];
}

i32 AddedTokens::id_of(std::string_view text) const {
  const auto found = by_text_.find(text);
  return found == by_text_.end() ? kNoToken : found->second.id;
}

bool AddedTokens::is_special(std::string_view text) const {
  const auto found = by_text_.find(text);
  return found != by_text_.end() && found->second.special;
}

}  // namespace spillway::data
