// The "model" of a tokenizer.json, which turns a piece of text into ids. Immutable and thread-safe; the working memory of a call is in its
// Scratch.
#pragma once
#include <memory>
#include <vector>

#include "data/tokenizer/json_fields.h"
#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer/vocabulary.h"
#include "data/tokenizer/word_cache.h"
#include "data/tokenizer/work_budget.h"

namespace spillway::data {

/// Working memory that calls reuse, and the budget of the current text. Not thread-safe.
struct Scratch {
  struct Symbol {
    i32 id;
    i32 bytes;           // length; 0 if merged into another symbol
    i64 previous, next;  // index of the neighbours; -1 if none
  };
  struct Candidate {
    u32 rank;
    i32 id;
    i64 at;
  };
  struct Best {
    double score = 0;
    i64 begin = -1;  // start of the last piece on the best path to here; -1 if no path
    i32 id = 0;
  };
  WorkBudget* budget = nullptr;  // budget of the current text
  WordCache cache;
  std::vector<Symbol> symbols;
  std::vector<Candidate> heap;
  std::vector<u32> ranks;
  std::vector<i32> merged;
  std::vector<Best> best;
};

class Model {
 public:
  virtual ~Model() = default;
  /// Appends the ids of a piece, which must not be empty. If `ranges` is not null, appends for each id the bytes of the piece that it
  /// stands for, counted from the piece's beginning. Throws Error(data) if the vocabulary has no token for a character, not even an unknown
  /// token.
  virtual void encode(std::string_view piece, Scratch& scratch, std::vector<i32>& ids, std::vector<ByteRange>* ranges) const = 0;
  const Vocabulary& vocabulary() const { return vocabulary_; }

 protected:
  Vocabulary vocabulary_;
};

/// Reads the model's JSON. If `raw_bytes` is set, pieces come as plain bytes although the vocabulary uses byte characters (byte_level.h),
/// which saves the mapping. This is a request: the model clears the flag if it cannot do so. Throws Error(data).
std::unique_ptr<Model> read_model(const nlohmann::json& value, const JsonPlace& place, bool& raw_bytes);

/// Reads a text that a model puts before or behind parts of a word. Returns "" if the key is missing. At most 16 bytes are allowed.
std::string read_affix(Fields& fields, const char* key);

std::unique_ptr<Model> read_bpe(Fields& fields, bool& raw_bytes);
std::unique_ptr<Model> read_unigram(Fields& fields);
std::unique_ptr<Model> read_word_piece(Fields& fields);
std::unique_ptr<Model> read_word_level(Fields& fields);

}  // namespace spillway::data
