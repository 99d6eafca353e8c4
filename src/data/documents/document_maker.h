// From a line of fine-tuning data to the tokens that are trained on, and which of them count. Const and thread-safe.
#pragma once
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "data/chat/chat_template.h"
#include "data/rows/row.h"
#include "data/tokenizer/tokenizer.h"

namespace spillway::data {

/// Which tokens are targets. by_layout: of texts all, of prompts with completions the completions, of conversations the assistant's, of
/// tokens those with a label.
enum class LossOn : u8 { by_layout, all, completion, assistant };

struct Document {
  std::vector<i32> ids;
  std::vector<u8> counted;  // 1: a target, as long as it is not the document's first token
};

struct DocumentOptions {
  std::optional<RowLayout> layout;  // none: recognized, line by line
  LossOn loss_on = LossOn::by_layout;
  std::optional<i32> end_token;  // after each text and completion; conversations end as their template has it
};

class DocumentMaker {
 public:
  /// `chat`: of conversations, with the variables that it reads (special_token_variables); none: a conversation is refused.
  DocumentMaker(std::shared_ptr<const Tokenizer> tokenizer, std::optional<ChatTemplate> chat,
                std::shared_ptr<const nlohmann::ordered_json> variables, const DocumentOptions& options);
  ~DocumentMaker();

  /// A text's tokens and its end. A prompt and its completion are encoded apart. Of a conversation what the template's generation blocks
  /// give counts; where it has none, what each of the assistant's messages adds to the conversation before it with the prompt for an
  /// answer. Tokens are taken as they are, without an end. Error(data) with file and line: no such row, a template that raises, or one whose conversations do not grow by what is added.
  Document make(std::string_view line, const std::string& file, i64 line_number) const;

  const Tokenizer& tokenizer() const { return *tokenizer_; }
  const DocumentOptions& options() const { return options_; }

 private:
  Document of_text(const std::string& text) const;
  Document of_completion(const Row& row) const;
  Document of_tokens(const Row& row) const;
  Document of_messages(const Row& row, const std::string& where) const;
  std::vector<ByteRange> answers(const nlohmann::ordered_json& messages, const std::string& text, const std::string& where) const;

  std::shared_ptr<const Tokenizer> tokenizer_;
  std::optional<ChatTemplate> chat_;
  std::shared_ptr<const nlohmann::ordered_json> variables_;
  const DocumentOptions options_;
};

}  // namespace spillway::data
