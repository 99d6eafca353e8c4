// The "model" of a tokenizer.json: from a piece of text to ids. Immutable and thread-safe; what a call needs to work lies in its Scratch.
#pragma once
#include <memory>
#include <vector>

#include "data/tokenizer/json_fields.h"
#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer/vocabulary.h"
#include "data/tokenizer/word_cache.h"
#include "data/tokenizer/work_budget.h"

namespace spillway::data {

/// Memory that calls use again, and the budget of the text in work. Not thread-safe.
struct Scratch {
  struct Symbol {
    i32 id;
    i32 bytes;           // 0: merged into another
    i64 previous, next;  // -1: none
  };
  struct Candidate {
    u32 rank;
    i32 id;
    i64 at;
  };
  struct Best {
    double score = 0;
    i64 begin = -1;  // of the last piece on the best path to here; -1: no path
    i32 id = 0;
  };
  WorkBudget* budget = nullptr;  // of the text in work
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
  /// Appends the ids of a piece, which is not empty, and, if `ranges` are wanted, the bytes of the piece each stands for, counted from its
  /// beginning. Errors: Error(data) if it has a character for which the vocabulary has nothing, not even an unknown token.
  virtual void encode(std::string_view piece, Scratch& scratch, std::vector<i32>& ids, std::vector<ByteRange>* ranges) const = 0;
  const Vocabulary& vocabulary() const { return vocabulary_; }

 protected:
  Vocabulary vocabulary_;
};

/// `raw_bytes`: pieces come as plain bytes where the vocabulary has byte characters (byte_level.h), which saves mapping them. It is a wish:
/// the model clears it if it cannot. Errors: Error(data).
std::unique_ptr<Model> read_model(const nlohmann::json& value, const JsonPlace& place, bool& raw_bytes);

/// What a model puts before or behind each part of a word, "" where nothing is said; at most 16 bytes.
std::string read_affix(Fields& fields, const char* key);

std::unique_ptr<Model> read_bpe(Fields& fields, bool& raw_bytes);
std::unique_ptr<Model> read_unigram(Fields& fields);
std::unique_ptr<Model> read_word_piece(Fields& fields);
std::unique_ptr<Model> read_word_level(Fields& fields);

}  // namespace spillway::data
