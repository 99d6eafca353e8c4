// The "decoder" of a tokenizer.json: a chain of stages that turns tokens into text. Each stage passes
// text on as soon as later tokens can no longer change it. So one chain serves both streaming and
// decoding of all tokens at once. A Decoder is immutable and thread-safe; a Chain belongs to one stream.
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
  /// Passes the next bytes of a token to this stage. `ends` means that the token ends with these bytes. Throws Error(data) if the budget is
  /// used up.
  void put(std::string_view text, bool ends) {
    budget_.charge(1 + text.size());
    take(text, ends);
  }
  /// Signals that no more tokens follow.
  virtual void finish() = 0;
  WorkBudget& budget() const { return budget_; }

 protected:
  virtual void take(std::string_view text, bool ends) = 0;

 private:
  WorkBudget& budget_;
};

class Decoder {
 public:
  /// Reads the JSON of "decoder". If the JSON is null, tokens are joined with spaces. Throws Error(data) if the JSON is invalid.
  Decoder(const nlohmann::json& value, const JsonPlace& place);

  /// The stages for one stream, linked to a chain. They append valid UTF-8 to `out`, always whole characters.
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
  double growth_ = 1;  // the largest factor by which the stages together may lengthen a text
};

}  // namespace spillway::data
