// The "added_tokens" of a tokenizer.json. These are texts that become one token wherever they
// occur; they are found before the rest of the text is tokenized. Immutable and thread-safe.
#pragma once
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "data/tokenizer/stages/normalizer.h"
#include "data/tokenizer/stages/pre_tokenizer.h"
#include "data/tokenizer/trie.h"
#include "data/tokenizer/vocabulary.h"

namespace spillway::data {

struct AddedToken {
  std::string text;
  i32 id = kNoToken;
  bool special = false;
  bool single_word = false;             // the token matches only if no word character is directly before or after the text
  bool lstrip = false, rstrip = false;  // the token also takes the white space before it (lstrip) or after it (rstrip)
  bool normalized = false;              // the token is searched in the normalized text; its own text is normalized for that
};

class AddedTokens {
 public:
  AddedTokens() = default;
  /// Reads the list of added tokens. Throws Error(data) if the list is invalid. The id of each added token must be the one that Hugging
  /// Face's tokenizers would give it: the id of that text in the model's vocabulary, or the next unused id if the text is not in it.
  AddedTokens(const nlohmann::json& value, const JsonPlace& place, const Vocabulary& model, const Normalizers& normalizers);

  /// Splits `text` into added tokens of one kind (those whose flag `normalized` has the given value) and the text
  /// between them. No part is empty, and together the parts are the whole text. Throws Error(data) if the budget
  /// is used up, which happens with long added tokens of which large parts match almost everywhere in the text.
  void find(std::string_view text, bool normalized, WorkBudget& budget, std::vector<Span>& into) const;
  bool any(bool normalized) const { return normalized ? any_normalized_ : any_plain_; }

  const AddedToken* find(i32 id) const;
  i32 id_of(std::string_view text) const;
  bool is_special(std::string_view text) const;
  /// Returns a number that is greater than all ids of added tokens.
  i64 bound() const { return bound_; }
  /// Returns true if an added token may span the end of a line, or take the white space that comes after the line's end.
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
