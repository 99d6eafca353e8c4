// The "added_tokens" of a tokenizer.json: texts that become one token wherever they stand, before the model sees anything. Immutable and
// thread-safe.
#pragma once
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "data/tokenizer/normalizer.h"
#include "data/tokenizer/pre_tokenizer.h"
#include "data/tokenizer/trie.h"
#include "data/tokenizer/vocabulary.h"

namespace spillway::data {

struct AddedToken {
  std::string text;
  i32 id = kNoToken;
  bool special = false;
  bool single_word = false;             // only where no word character stands beside it
  bool lstrip = false, rstrip = false;  // takes the white space before, behind it
  bool normalized = false;              // looked for in the normalized text, in its own normalized form
};

class AddedTokens {
 public:
  AddedTokens() = default;
  /// Errors: Error(data), also where an id is not the one that Hugging Face's tokenizers would give: a token's own in the vocabulary, else
  /// the next above all.
  AddedTokens(const nlohmann::json& value, const JsonPlace& place, const Vocabulary& model, const Normalizers& normalizers);

  /// Cuts `text` into tokens of one kind and what lies between: no part is empty, together they are the text. Errors: Error(data) when the
  /// budget is used up, as by long tokens that nearly occur everywhere.
  void find(std::string_view text, bool normalized, WorkBudget& budget, std::vector<Span>& into) const;
  bool any(bool normalized) const { return normalized ? any_normalized_ : any_plain_; }

  const AddedToken* find(i32 id) const;
  i32 id_of(std::string_view text) const;
  bool is_special(std::string_view text) const;
  /// All ids are below it.
  i64 bound() const { return bound_; }
  /// Whether a token may reach over, or take white space behind, the end of a line.
  bool touch_line_ends() const { return touch_line_ends_; }

 private:
  struct Starts {
    bool at[256] = {};
  };
  struct OfText {
    i32 id;
    bool special;
  };
  void check_id(const AddedToken& token, const JsonPlace& place, const Vocabulary& model) const;
  std::vector<AddedToken> tokens_;
  std::unordered_map<i32, size_t> by_id_;
  std::map<std::string, OfText, std::less<>> by_text_;
  Trie plain_, normalized_;
  Starts plain_starts_, normalized_starts_;
  bool any_plain_ = false, any_normalized_ = false, touch_line_ends_ = false;
  i64 bound_ = 0;
};

}  // namespace spillway::data
