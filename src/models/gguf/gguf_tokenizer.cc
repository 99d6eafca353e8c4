// Writes the tokenizer as llama.cpp stores it. llama.cpp's kind "gpt2" is byte-level BPE, stored with the name of a pre-tokenization rule.
// The kind "llama" is SentencePiece's BPE, which merges by the scores of the resulting tokens.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "data/template/find_chat_template.h"
#include "data/tokenizer/byte_level.h"
#include "data/tokenizer/json_fields.h"
#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer/vocabulary.h"
#include "models/gguf/gguf_metadata.h"

namespace spillway::models {
namespace {

using nlohmann::json;

// llama.cpp's token types.
constexpr i32 kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6;
constexpr std::string_view kMetaspace = "\u2581";

// Pre-tokenization rules that llama.cpp knows, and llama.cpp's names for them.
struct Rule {
  std::string_view name, pattern;
};
constexpr std::string_view kContractions = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|)";
constexpr std::string_view kRest = R"([^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kRestByDigits = R"([^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kTekken =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kGpt4o =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// Returns the boolean that the object holds under `key`; `otherwise` if the key is absent or its value is not a boolean.
bool flag(const json& object, const char* key, bool otherwise) {
  const auto found = object.find(key);
  return found != object.end() && found->is_boolean() ? found->get<bool>() : otherwise;
}
std::string text(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

// Appends the steps of a pre-tokenizer to `into`, with nested sequences flattened.
void flatten(const json& step, std::vector<json>& into) {
  if (!step.is_object()) return;
  if (text(step, "type") != "Sequence") return into.push_back(step);
  for (const json& inner : step["pretokenizers"]) flatten(inner, into);
}

std::string pattern_of(const json& step) {
  const auto found = step.find("pattern");
  return found != step.end() ? text(*found, "Regex") : "";
}

// Returns llama.cpp's name of the pre-tokenization rule that the steps form; empty if llama.cpp has no such rule.
std::string rule_of(const std::vector<json>& steps, bool ignore_merges) {
  const json& last = steps.back();
  if (flag(last, "use_regex", true)) {
    if (steps.size() == 1) return "gpt-2";
    return steps.size() == 2 && text(steps[0], "type") == "Digits" && flag(steps[0], "individual_digits", false) ? "smollm" : "";
  }
  if (steps.size() != 2 || text(steps[0], "type") != "Split" || text(steps[0], "behavior") != "Isolated") return "";
  const std::string pattern = pattern_of(steps[0]), head(kContractions);
  if (pattern == head + std::string(kRest)) return ignore_merges ? "llama-bpe" : "dbrx";
  if (pattern == head + std::string(kRestByDigits)) return "qwen2";
  if (pattern == kTekken) return "tekken";
  return pattern == kGpt4o ? "gpt-4o" : "";
}

class TokenizerKeys {
 public:
  TokenizerKeys(const ModelConfig& config, const GgufTokenizer& tokenizer, GgufMetadata& metadata, std::vector<std::string>& notes)
      : config_(config),
        folder_(*tokenizer.folder),
        more_ends_(tokenizer.more_ends),
        metadata_(metadata),
        notes_(notes),
        tokenizer_(data::read_tokenizer(folder_)),
        file_(data::read_json(folder_ / "tokenizer.json")) {
    if (const auto found = file_.find("pre_tokenizer"); found != file_.end()) flatten(*found, steps_);
  }

  void add() {
    if (tokenizer_->vocabulary() > config_.vocabulary) {
      throw Error(ErrorCode::data, fmt::format("[export] {}: expected at most {} tokens (vocab_size in config.json), got {}",
                                               (folder_ / "tokenizer.json").string(), config_.vocabulary, tokenizer_->vocabulary()));
    }
    const bool bpe = file_["model"].contains("merges");
    if (bpe && is_byte_level()) {
      add_byte_level();
    } else if (bpe && tokenizer_->id_of(kMetaspace)) {
      add_sentencepiece();
    } else {
      notes_.push_back(
          "the file is written without a tokenizer, because llama.cpp does not support this kind of tokenizer for this model: pass token "
          "ids to llama.cpp");
      metadata_.add("tokenizer.ggml.model", "none");
      return;
    }
    add_special();
    add_chat_templates();
  }

 private:
  // Adds the default chat template, and others with their names. llama.cpp's converter allows only letters and digits in names, so other
  // characters are replaced.
  void add_chat_templates() {
    std::vector<std::string> names;
    for (const std::string& name : data::chat_template_names(folder_)) {
      const std::string source = data::find_chat_template(folder_, name)->source();
      if (name == "default") {
        metadata_.add("tokenizer.chat_template", source);
        continue;
      }
      std::string plain = name;
      std::ranges::replace_if(
          plain, [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); }, '_');
      if (plain.empty() || std::ranges::find(names, plain) != names.end()) continue;
      metadata_.add("tokenizer.chat_template." + plain, source);
      names.push_back(plain);
    }
    if (!names.empty()) metadata_.add("tokenizer.chat_templates", names);
  }

  void add_byte_level() {
    std::string rule = rule_of(steps_, flag(file_["model"], "ignore_merges", false));
    if (rule.empty()) {
      notes_.push_back(
          "llama.cpp does not know the tokenizer's rule for splitting words and uses its own: the same text may give other tokens in "
          "llama.cpp");
      rule = "default";
    }
    metadata_.add("tokenizer.ggml.model", "gpt2");
    metadata_.add("tokenizer.ggml.pre", rule);
    add_tokens();
    std::vector<std::string> merges;
    for_each_merge([&](const std::string& left, const std::string& right) { merges.push_back(left + " " + right); });
    metadata_.add("tokenizer.ggml.merges", merges);
    if (flag(steps_.back(), "add_prefix_space", false)) metadata_.add("tokenizer.ggml.add_space_prefix", true);
  }

  void add_sentencepiece() {
    metadata_.add("tokenizer.ggml.model", "llama");
    metadata_.add("tokenizer.ggml.pre", "default");
    add_tokens();
    // An earlier merge gets a higher score. Tokens that no merge produces get a lower score than all others.
    std::vector<float> scores(static_cast<size_t>(config_.vocabulary), 0.0f);
    std::vector<bool> scored(scores.size());
    float next = 0;
    for_each_merge([&](const std::string& left, const std::string& right) {
      const auto id = tokenizer_->id_of(left + right);
      next -= 1;
      if (!id || scored[static_cast<size_t>(*id)]) return;
      scored[static_cast<size_t>(*id)] = true;
      scores[static_cast<size_t>(*id)] = next;
    });
    for (size_t id = 0; id < scores.size(); ++id) {
      if (!scored[id] && types_[id] == kNormal) scores[id] = next - 1;
    }
    metadata_.add("tokenizer.ggml.scores", scores);
    metadata_.add("tokenizer.ggml.add_space_prefix", begins_with_space());
  }

  void add_tokens() {
    std::vector<std::string> tokens;
    for (i32 id = 0; id < config_.vocabulary; ++id) {
      std::string token = id < tokenizer_->vocabulary() ? tokenizer_->token(id) : "";
      types_.push_back(token.empty() ? kUnused : kNormal);
      tokens.push_back(token.empty() ? fmt::format("[PAD{}]", id) : std::move(token));
    }
    for (int byte = 0; byte < 256; ++byte) {
      const auto id = tokenizer_->id_of(data::byte_token(static_cast<unsigned char>(byte)));
      if (id && flag(file_["model"], "byte_fallback", false)) types_[static_cast<size_t>(*id)] = kByte;
    }
    if (const auto added = file_.find("added_tokens"); added != file_.end() && added->is_array()) {
      for (const json& token : *added) {
        const auto id = token.at("id").get<size_t>();
        types_[id] = flag(token, "special", false) ? kControl : kUserDefined;
        if (types_[id] == kUserDefined) replace_all(tokens[id], kMetaspace, " ");
      }
    }
    if (const auto unknown = unknown_token()) types_[static_cast<size_t>(*unknown)] = kUnknown;
    metadata_.add("tokenizer.ggml.tokens", tokens);
    metadata_.add("tokenizer.ggml.token_type", types_);
  }

  void add_special() {
    const data::NamedTokens named = tokenizer_->named();
    const auto known = [&](std::optional<i64> id) { return id && *id < config_.vocabulary ? id : std::nullopt; };
    const data::Around& around = tokenizer_->around();
    auto begin = named.begin_of_text ? std::optional<i64>(*named.begin_of_text) : known(config_.begin_token);
    // llama.cpp puts its begin token before each text. If the tokenizer puts exactly one token there, that token must be the begin token.
    if (around.before.size() == 1) begin = around.before.front();
    std::optional<i64> end;
    if (named.end_of_text) end = *named.end_of_text;
    for (const i64 id : config_.end_tokens) {
      if (!end) end = known(id);
    }
    const auto put = [&](const char* key, std::optional<i64> id) {
      if (id) metadata_.add(fmt::format("tokenizer.ggml.{}_token_id", key), static_cast<u32>(*id));
    };
    put("bos", begin);
    put("eos", end);
    if (!end) notes_.push_back("neither the tokenizer nor config.json names an end-of-text token: llama.cpp uses its own default");
    std::vector<i64> ends = config_.end_tokens;
    ends.insert(ends.end(), more_ends_.begin(), more_ends_.end());
    for (const i64 id : ends) {
      if (id == end || !known(id)) continue;
      put("eot", id);  // llama.cpp takes one additional end token; it finds others by their names
      break;
    }
    put("unknown", unknown_token());
    put("padding", named.padding ? std::optional<i64>(*named.padding) : known(config_.pad_token));
    metadata_.add("tokenizer.ggml.add_bos_token", around.before.size() == 1);
    metadata_.add("tokenizer.ggml.add_eos_token", around.behind.size() == 1 && end == around.behind.front());
    if (around.before.size() > 1)
      notes_.push_back("the tokenizer puts several tokens before each text, but llama.cpp does not add them: write them into the prompt");
  }

  bool is_byte_level() const { return !steps_.empty() && text(steps_.back(), "type") == "ByteLevel"; }

  // Returns the unknown token. Byte-level BPE has none, whatever the file says.
  std::optional<i64> unknown_token() const {
    const auto id = is_byte_level() ? std::nullopt : tokenizer_->id_of(text(file_["model"], "unk_token"));
    return id ? std::optional<i64>(*id) : std::nullopt;
  }

  // Returns whether the tokenizer puts a space before a text.
  bool begins_with_space() const {
    const std::vector<i32> ids = tokenizer_->encode("a");
    return !ids.empty() && tokenizer_->token(ids.front()).starts_with(kMetaspace);
  }

  static void replace_all(std::string& text, std::string_view what, std::string_view with) {
    for (size_t at = text.find(what); at != text.npos; at = text.find(what, at + with.size())) text.replace(at, what.size(), with);
  }

  template <class Visit>
  void for_each_merge(const Visit& visit) const {
    for (const json& merge : file_["model"]["merges"]) {
      if (merge.is_array()) {
        visit(merge[0].get<std::string>(), merge[1].get<std::string>());
        continue;
      }
      const auto& both = merge.get_ref<const std::string&>();
      if (both.starts_with("#version")) continue;
      const size_t space = both.find(' ');
      visit(both.substr(0, space), both.substr(space + 1));
    }
  }

  const ModelConfig& config_;
  const std::filesystem::path& folder_;
  const std::vector<i64>& more_ends_;
  GgufMetadata& metadata_;
  std::vector<std::string>& notes_;
  std::unique_ptr<data::Tokenizer> tokenizer_;
  json file_;
  std::vector<json> steps_;
  std::vector<i32> types_;  // llama.cpp's token type of each token id
};

// Adds a tokenizer of single bytes as a byte-level BPE without merges.
void add_bytes(GgufMetadata& metadata) {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(data::byte_character(static_cast<char>(byte)));
  metadata.add("tokenizer.ggml.model", "gpt2");
  metadata.add("tokenizer.ggml.pre", "gpt-2");
  metadata.add("tokenizer.ggml.tokens", tokens);
  metadata.add("tokenizer.ggml.token_type", std::vector<i32>(tokens.size(), kNormal));
  metadata.add("tokenizer.ggml.merges", std::vector<std::string>());
  metadata.add("tokenizer.ggml.add_bos_token", false);
  metadata.add("tokenizer.ggml.add_eos_token", false);
}

}  // namespace

void add_gguf_tokenizer(const ModelConfig& config, const GgufTokenizer& tokenizer, GgufMetadata& metadata,
                        std::vector<std::string>& notes) {
  if (tokenizer.folder) return TokenizerKeys(config, tokenizer, metadata, notes).add();
  if (tokenizer.bytes) return add_bytes(metadata);
  notes.push_back("the file is written without a tokenizer, because the model has none: llama.cpp can only read and write token ids");
  metadata.add("tokenizer.ggml.model", "none");
}

}  // namespace spillway::models
