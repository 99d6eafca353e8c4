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
  std::vector<u8> counted;           // 1: a target, as long as it is not the document's first token
  std::vector<u32> begins{};         // where a further document begins that shares the row, ascending, none at 0; no targets
  std::vector<std::string> unread{};  // keys of the line that are not read (Row::unread)
};

struct DocumentOptions {
  std::optional<RowLayout> layout;  // none: recognized, line by line
  LossOn loss_on = LossOn::by_layout;
  std::optional<i32> end_token;  // after each text and completion that has none; conversations end as their template has it
};

class DocumentMaker {
 public:
  /// `chat`: of conversations, with the variables that it reads (special_token_variables); none: a conversation is refused.
  DocumentMaker(std::shared_ptr<const Tokenizer> tokenizer, std::optional<ChatTemplate> chat,
                std::shared_ptr<const nlohmann::ordered_json> variables, const DocumentOptions& options);
  ~DocumentMaker();

  /// A text, and a prompt with its completion, which are one text, have what the tokenizer puts around it (encode_with_around), and the end
  /// token behind it unless they end with it. Of a completion the tokens count that share a byte with it, also where one holds the last of
  /// the prompt too: as TRL's SFTTrainer, whose completion begins where the tokens of the prompt alone and of both together part.
  ///
  /// A conversation is what the template writes, without special tokens of the tokenizer's own. What the template's generation blocks give
  /// counts; where it has none, what each of the assistant's messages adds to the conversation before it with the prompt for an answer.
  /// Tokens are taken as they are, without an end. Error(data) with file and line: no such row, a template that raises, or one whose
  /// conversations do not grow by what is added.
  Document make(std::string_view line, const std::string& file, i64 line_number) const;

  /// What a text of a row has before and behind it, with the end token.
  Around around_texts() const;

  const Tokenizer& tokenizer() const { return *tokenizer_; }
  const DocumentOptions& options() const { return options_; }

 private:
  Document of_text(const std::string& text) const;
  Document of_completion(const Row& row) const;
  Document of_tokens(const Row& row) const;
  Document of_messages(const Row& row, const std::string& where) const;
  void put_around(Document& document) const;

  std::shared_ptr<const Tokenizer> tokenizer_;
  std::optional<ChatTemplate> chat_;
  std::shared_ptr<const nlohmann::ordered_json> variables_;
  const DocumentOptions options_;
  std::string end_text_;  // what in a text becomes the end token; empty: nothing
};

}  // namespace spillway::data
