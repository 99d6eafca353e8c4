// The "decoder" of a tokenizer.json: stages through which the tokens of a text run, one after the other, until text comes out. Written so
// that every stage gives what is certain as soon as it is; decoding all at once is the same stages. A Decoder is immutable and thread-safe,
// a chain of stages belongs to one stream.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/json_fields.h"
#include "data/tokenizer/work_budget.h"

namespace spillway::data {

class DecodeStage {
 public:
  explicit DecodeStage(WorkBudget& budget) : budget_(budget) {}
  virtual ~DecodeStage() = default;
  /// The next bytes of a token; `ends` if the token ends with them. Errors: Error(data) when the budget is used up.
  void put(std::string_view text, bool ends) {
    budget_.charge(1 + text.size());
    take(text, ends);
  }
  /// No more tokens.
  virtual void finish() = 0;
  WorkBudget& budget() const { return budget_; }

 protected:
  virtual void take(std::string_view text, bool ends) = 0;

 private:
  WorkBudget& budget_;
};

class Decoder {
 public:
  /// Null: tokens with a space between them. Errors: Error(data).
  Decoder(const nlohmann::json& value, const JsonPlace& place);

  /// Stages that write valid UTF-8 to `out`, in characters that are whole.
  class Chain {
   public:
    Chain(const Decoder& decoder, WorkBudget& budget, std::string& out);
    void put(std::string_view token) { first_->put(token, true); }
    void finish() { first_->finish(); }

   private:
    std::vector<std::unique_ptr<DecodeStage>> stages_;
    DecodeStage* first_;
  };

 private:
  using MakeStage = std::function<std::unique_ptr<DecodeStage>(DecodeStage& next)>;
  void add(const nlohmann::json& value, const JsonPlace& place, int depth);
  MakeStage read_stage(const std::string& type, Fields& fields);
  std::vector<MakeStage> stages_;
  double growth_ = 1;  // how many times longer the stages may make a text
};

}  // namespace spillway::data
