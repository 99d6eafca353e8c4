#include "data/tokenizer/json_fields.h"

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"
#include "base/lfs_pointer.h"
#include "base/utf8.h"

namespace spillway::data {
namespace {

using nlohmann::json;

constexpr i64 kLargestFile = kGiB;
constexpr size_t kLongestShown = 200;  // the most bytes of a file's text that a message shows

/// Formats a value for an error message. The result is ASCII JSON of at most about 60 characters.
std::string shown(const json& value) {
  if (value.is_object() && value.contains("type") && value["type"].is_string()) return "an object of type " + shown(value["type"]);
  if (value.is_object()) return "an object";
  if (value.is_array()) return "an array of " + std::to_string(value.size());
  const std::string text = value.dump(-1, ' ', true, json::error_handler_t::replace);
  return text.size() <= 60 ? text : text.substr(0, 57) + "...";
}

}  // namespace

JsonPlace JsonPlace::below(std::string_view name) const {
  return {file, key.empty() ? std::string(name) : key + "." + std::string(name), left};
}

void JsonPlace::take_step() const {
  if (--left->steps < 0)
    refuse_value(*this, "at most " + std::to_string(PartsLeft().steps) + " steps of normalizers, pre_tokenizers and decoders in the file",
                 "more");
}

void JsonPlace::take_pattern(size_t bytes) const {
  left->pattern_bytes -= static_cast<i64>(bytes);
  if (left->pattern_bytes < 0)
    refuse_value(*this, "at most " + std::to_string(PartsLeft().pattern_bytes) + " bytes of regular expressions in the file", "more");
}

void refuse_value(const JsonPlace& place, const std::string& expected, const std::string& got) {
  const auto shortened = [](const std::string& text) {
    size_t end = std::min(text.size(), kLongestShown);
    while (end < text.size() && end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
    return end == text.size() ? text : text.substr(0, end) + "...";
  };
  throw Error(ErrorCode::data, "[tokenizer] expected " + shortened(expected) + (place.key.empty() ? "" : " as " + shortened(place.key)) +
                                   ", got " + shortened(got) + ", in " + place.file + "; use a file that Hugging Face's tokenizers wrote");
}

void refuse_json(const JsonPlace& place, const std::string& expected, const json& got) { refuse_value(place, expected, shown(got)); }

std::optional<i64> whole_number(const json& value, i64 most) {
  if (!value.is_number_integer()) return std::nullopt;
  const bool too_large = value.is_number_unsigned() && value.get<u64>() > static_cast<u64>(most);
  if (too_large || value.get<i64>() < 0 || value.get<i64>() > most) return std::nullopt;
  return value.get<i64>();
}

json read_json(const std::filesystem::path& file) {
  std::error_code error;
  const auto bytes = std::filesystem::file_size(file, error);
  if (error) throw Error(ErrorCode::data, "[tokenizer] expected a readable file, got " + error.message() + ", " + file.string());
  if (bytes > static_cast<u64>(kLargestFile)) {
    throw Error(ErrorCode::data, "[tokenizer] expected a file of at most 1 GiB, got " + std::to_string(bytes) + " bytes, " + file.string());
  }
  std::string text(static_cast<size_t>(bytes), '\0');
  std::ifstream in(file, std::ios::binary);
  if (!in.read(text.data(), static_cast<std::streamsize>(bytes))) {
    throw Error(ErrorCode::data, "[tokenizer] expected a readable file, got a read error, " + file.string());
  }
  refuse_lfs_pointer(file.string(), text);
  JsonFault fault;
  json all = parse_json(text, &fault);
  if (all.is_discarded()) {
    const char* const sentencepiece =
        file.extension() == ".model"
            ? "; transformers.AutoTokenizer.from_pretrained(FOLDER).save_pretrained(NEW) makes a tokenizer.json in "
              "Python of a tokenizer.model"
            : "";
    throw Error(ErrorCode::data, "[tokenizer] " + file.string() + ": " + fault.in_words(text) + sentencepiece);
  }
  return all;
}

Fields::Fields(const json& object, JsonPlace place) : object_(object), place_(std::move(place)) {
  if (!object.is_object()) refuse_json(place_, "an object", object);
}

const json* Fields::find(const char* key) {
  used_.insert(key);
  const auto found = object_.find(key);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

const json& Fields::at(const char* key, const char* expected) {
  const json* found = find(key);
  if (found == nullptr) refuse_value(place_of(key), expected, "nothing");
  return *found;
}

std::string Fields::text(const char* key) {
  const json& value = at(key, "a string");
  if (!value.is_string()) refuse_json(place_of(key), "a string", value);
  return value.get<std::string>();
}

std::optional<std::string> Fields::text_if_any(const char* key) {
  if (find(key) == nullptr) return std::nullopt;
  return text(key);
}

char32_t Fields::character(const char* key) {
  const std::string value = text(key);
  size_t at = 0;
  if (value.empty()) refuse_value(place_of(key), "one character", "\"\"");
  const char32_t code = next_code(value, at);
  if (at != value.size()) refuse_json(place_of(key), "one character", *find(key));
  return code;
}

bool Fields::flag(const char* key, std::optional<bool> otherwise) {
  const json* value = find(key);
  if (value == nullptr && otherwise) return *otherwise;
  if (value == nullptr) refuse_value(place_of(key), "true or false", "nothing");
  if (!value->is_boolean()) refuse_json(place_of(key), "true or false", *value);
  return value->get<bool>();
}

i64 Fields::number(const char* key, i64 least, i64 most, std::optional<i64> otherwise) {
  const json* value = find(key);
  if (value == nullptr && otherwise) return *otherwise;
  const std::string expected = "a whole number from " + std::to_string(least) + " to " + std::to_string(most);
  if (value == nullptr) refuse_value(place_of(key), expected, "nothing");
  const auto number = whole_number(*value, most);
  if (!number || *number < least) refuse_json(place_of(key), expected, *value);
  return *number;
}

void Fields::refuse_the_rest() const {
  for (const auto& [key, value] : object_.items()) {
    if (!used_.contains(key) && !value.is_null() && value != json(false)) {
      refuse_json(place_of(json(key).dump(-1, ' ', true, json::error_handler_t::replace)), "no value (this program does not know the key)",
                  value);
    }
  }
}

}  // namespace spillway::data
