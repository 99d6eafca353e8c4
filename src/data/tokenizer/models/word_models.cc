// Models that look up whole words. WordPiece (Schuster, Nakajima 2012; as in BERT) takes the longest token with which a word begins, then
// the longest token that continues it, and so on. A word that cannot be split completely becomes one unknown token. In WordLevel a whole
// word is a token or unknown.
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "base/utf8.h"
#include "data/tokenizer/models/model.h"

namespace spillway::data {
namespace {

using nlohmann::json;

constexpr size_t kLookUpCost = 4;     // the budget steps for a look-up of a text, to which one is added for each 8 bytes
constexpr size_t kLongestAffix = 16;  // the limit in bytes; common affixes are "##" and "</w>"

class WordModel : public Model {
 public:
  explicit WordModel(Fields& fields) {
    vocabulary_ = Vocabulary::read(fields.at("vocab", "an object"), fields.place_of("vocab"));
    unknown_text_ = fields.text("unk_token");
    unknown_ = vocabulary_.find(unknown_text_);
  }

 protected:
  void put_unknown(std::string_view word, std::vector<i32>& ids, std::vector<ByteRange>* ranges) const {
    if (unknown_ == kNoToken) {
      throw Error(ErrorCode::data, "[tokenizer] expected words that are in the vocabulary, got " +
                                       json(std::string(word.substr(0, 100))).dump(-1, ' ', true, json::error_handler_t::replace) +
                                       ", and the vocabulary has no unk_token; use another tokenizer");
    }
    ids.push_back(unknown_);
    if (ranges) ranges->push_back({0, static_cast<i64>(word.size())});
  }

 private:
  std::string unknown_text_;
  i32 unknown_ = kNoToken;
};

class WordPiece : public WordModel {
 public:
  explicit WordPiece(Fields& fields) : WordModel(fields) {
    fields.at("continuing_subword_prefix", "a string");
    prefix_ = read_affix(fields, "continuing_subword_prefix");
    most_characters_ = fields.number("max_input_chars_per_word", 0, std::numeric_limits<i64>::max());
  }

  void encode(std::string_view word, Scratch& scratch, std::vector<i32>& ids, std::vector<ByteRange>* ranges) const override {
    const size_t first = ids.size(), first_range = ranges ? ranges->size() : 0;
    i64 characters = 0;
    for (size_t at = 0; at < word.size(); ++characters) next_code(word, at);
    bool known = characters <= most_characters_;
    std::string with_prefix;
    size_t steps = 0;
    for (size_t at = 0; known && at < word.size();) {
      size_t end = std::min(word.size(), at + static_cast<size_t>(vocabulary_.longest_bytes()));
      while (end > at && end < word.size() && (static_cast<unsigned char>(word[end]) & 0xC0) == 0x80) --end;
      i32 id = kNoToken;
      while (end > at) {
        std::string_view part = word.substr(at, end - at);
        if (at > 0) part = with_prefix.assign(prefix_).append(part);
        steps += kLookUpCost + part.size() / 8;
        if (steps >= WorkBudget::kStepsAtOnce) scratch.budget->charge(std::exchange(steps, 0));
        id = vocabulary_.find(part);
        if (id != kNoToken) break;
        end = at + last_character(word.substr(at, end - at));
      }
      known = id != kNoToken;
      ids.push_back(id);
      if (ranges) ranges->push_back({static_cast<i64>(at), static_cast<i64>(end)});
      at = end;
    }
    scratch.budget->charge(steps);
    if (known) return;
    ids.resize(first);
    if (ranges) ranges->resize(first_range);
    put_unknown(word, ids, ranges);
  }

 private:
  std::string prefix_;
  i64 most_characters_ = 0;
};

class WordLevel : public WordModel {
 public:
  using WordModel::WordModel;
  void encode(std::string_view word, Scratch&, std::vector<i32>& ids, std::vector<ByteRange>* ranges) const override {
    const i32 id = vocabulary_.find(word);
    if (id == kNoToken) return put_unknown(word, ids, ranges);
    ids.push_back(id);
    if (ranges) ranges->push_back({0, static_cast<i64>(word.size())});
  }
};

}  // namespace

std::string read_affix(Fields& fields, const char* key) {
  const std::string affix = fields.text_if_any(key).value_or("");
  if (affix.size() > kLongestAffix) refuse_json(fields.place_of(key), "at most 16 bytes", json(affix));
  return affix;
}

std::unique_ptr<Model> read_word_piece(Fields& fields) { return std::make_unique<WordPiece>(fields); }
std::unique_ptr<Model> read_word_level(Fields& fields) { return std::make_unique<WordLevel>(fields); }

std::unique_ptr<Model> read_model(const json& value, const JsonPlace& place, bool& raw_bytes) {
  Fields fields(value, place);
  // Reads the type of the model. Old files do not name the type, so it is recognised by the keys.
  const std::string type = fields.text_if_any("type").value_or(value.contains("merges") ? "BPE" : "");
  const bool bpe = type == "BPE";
  if (!bpe) raw_bytes = false;
  std::unique_ptr<Model> model;
  if (bpe) {
    model = read_bpe(fields, raw_bytes);
  } else if (type == "Unigram") {
    model = read_unigram(fields);
  } else if (type == "WordPiece") {
    model = read_word_piece(fields);
  } else if (type == "WordLevel") {
    model = read_word_level(fields);
  } else {
    refuse_value(fields.place_of("type"), "a tokenizer model that this program supports", '"' + type + '"');
  }
  fields.refuse_the_rest();
  return model;
}

}  // namespace spillway::data
