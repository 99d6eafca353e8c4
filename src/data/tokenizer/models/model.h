// The "model" of a tokenizer.json, which turns a piece of text into ids. A model is immutable and thread-safe: what a call needs to write
// is in its Scratch.
#pragma once
#include <memory>
#include <vector>

#include "data/tokenizer/json_fields.h"
#include "data/tokenizer/models/word_cache.h"
#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer/vocabulary.h"
#include "data/tokenizer/work_budget.h"

namespace spillway::data {

/// Working memory that calls reuse, and the budget of the current text. Not thread-safe.
struct Scratch {
  struct Symbol {
    i32 id;
    i32 bytes;           // the symbol's length in bytes; 0 if the symbol was merged into another one
    i64 previous, next;  // the indices of the neighbours; -1 if there is no neighbour
  };
  struct Candidate {
    u32 rank;
    i32 id;
    i64 at;
  };
  struct Best {
    double score = 0;
    i64 begin = -1;  // where the last token of the best path to this position begins; -1 if no path ends at it
    i32 id = 0;
  };
  WorkBudget* budget = nullptr;  // the budget of the current text
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
  /// Appends the ids of a piece, which must not be empty. If `ranges` is not null, also appends for each id the range of bytes of the piece
  /// that the id stands for. Throws Error(data) if a character has no token in the vocabulary and there is no unknown token either.
  virtual void encode(std::string_view piece, Scratch& scratch, std::vector<i32>& ids, std::vector<ByteRange>* ranges) const = 0;
  const Vocabulary& vocabulary() const { return vocabulary_; }

 protected:
  Vocabulary vocabulary_;
};

/// Reads the model's JSON. If `raw_bytes` is true, the caller asks for a model that takes pieces as plain bytes although its vocabulary
/// is written in byte characters (byte_level.h); with such a model, texts need not be mapped to byte characters. If the model cannot take
/// plain bytes, read_model() sets `raw_bytes` to false. Throws Error(data).
std::unique_ptr<Model> read_model(const nlohmann::json& value, const JsonPlace& place, bool& raw_bytes);

/// Reads a text that a model puts before or after parts of a word, such as "##".
/// Returns "" if the key is missing. Throws if the text has more than 16 bytes.
std::string read_affix(Fields& fields, const char* key);

std::unique_ptr<Model> read_bpe(Fields& fields, bool& raw_bytes);
std::unique_ptr<Model> read_unigram(Fields& fields);
std::unique_ptr<Model> read_word_piece(Fields& fields);
std::unique_ptr<Model> read_word_level(Fields& fields);

}  // namespace spillway::data
