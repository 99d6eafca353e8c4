// Runs Spillway's tokenizers for tests/peers/compare_tokenizers.py, which compares them with others. The
// program reads a tokenizer and then commands from stdin, and answers each command with a line of JSON:
//   e <text in hex>    encodes a text: ids, ids with special tokens, byte ranges, the text that the ids decode to
//   d <ids>            decodes ids: the text decoded at once and decoded as a stream
//   t <file> <jobs>    encodes the lines of a file on <jobs> threads: number of tokens and seconds
//   v <file> <n> <out> trains a vocabulary of n tokens on the lines of a file
//   c <text in hex>    cuts a text at its last safe place: the place, and whether both parts give the ids of the whole
#include <chrono>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "base/error.h"
#include "base/utf8.h"
#include "data/tokenizer/hugging_face/train_bpe.h"
#include "data/tokenizer/tokenizer.h"

namespace {

using namespace spillway;
using nlohmann::json;

std::string from_hex(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  return bytes;
}

json decoded(const data::Tokenizer& tokenizer, const std::vector<i32>& ids) {
  const auto stream = tokenizer.stream_decoder(false);
  std::string joined;
  bool whole = true;
  for (const i32 id : ids) {
    const std::string piece = stream->put(id);
    whole = whole && spillway::is_utf8(piece);
    joined += piece;
  }
  joined += stream->finish();
  const std::string text = tokenizer.decode(ids);
  return {{"text", text}, {"skipped", tokenizer.decode(ids, true)}, {"stream", joined == text && whole}};
}

json encoded(const data::Tokenizer& tokenizer, const std::string& text) {
  const auto result = tokenizer.encode_with_ranges(text);
  json ranges = json::array();
  for (const auto& range : result.ranges) ranges.push_back({range.begin, range.end});
  const auto ids = tokenizer.encode(text);
  json answer = decoded(tokenizer, ids);
  answer["ids"] = ids;
  answer["special"] = tokenizer.encode(text, true);
  answer["ranges"] = ranges;
  answer["same"] = ids == result.ids;
  return answer;
}

json cut(const data::Tokenizer& tokenizer, const std::string& text) {
  const auto at = static_cast<size_t>(tokenizer.last_cut(text));
  auto ids = tokenizer.encode(text.substr(0, at));
  const auto rest = tokenizer.encode(text.substr(at));
  ids.insert(ids.end(), rest.begin(), rest.end());
  return {{"at", at}, {"same", ids == tokenizer.encode(text)}};
}

json timed(const data::Tokenizer& tokenizer, const std::string& file, size_t jobs) {
  std::vector<std::string> lines;
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) lines.push_back(line + "\n");
  std::vector<size_t> tokens(jobs);
  const auto start = std::chrono::steady_clock::now();
  std::vector<std::thread> threads;
  for (size_t j = 0; j < jobs; ++j) {
    threads.emplace_back([&, j] {
      for (size_t i = lines.size() * j / jobs; i < lines.size() * (j + 1) / jobs; ++i) tokens[j] += tokenizer.encode(lines[i]).size();
    });
  }
  for (auto& thread : threads) thread.join();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  size_t sum = 0;
  for (const size_t n : tokens) sum += n;
  return {{"tokens", sum}, {"seconds", took.count()}};
}

json trained(const std::string& file, i64 vocabulary, const std::string& out) {
  std::ifstream in(file);
  const auto next = [&](std::string& line) {
    if (!std::getline(in, line)) return false;
    line += '\n';
    return true;
  };
  const auto made = data::train_byte_level_bpe(next, {.vocabulary = vocabulary});
  std::ofstream(out) << made.tokenizer_json;
  return {{"tokens", made.vocabulary}};
}

}  // namespace

int main(int, char** arguments) {
  try {
    const auto tokenizer = data::read_tokenizer(arguments[1]);
    for (std::string line; std::getline(std::cin, line);) {
      std::istringstream words(line);
      std::string command, word;
      words >> command;
      json answer;
      if (command == "e" || command == "c") {
        words >> word;
        answer = command == "e" ? encoded(*tokenizer, from_hex(word)) : cut(*tokenizer, from_hex(word));
      } else if (command == "d") {
        std::vector<i32> ids;
        for (i32 id = 0; words >> id;) ids.push_back(id);
        answer = decoded(*tokenizer, ids);
      } else if (command == "v") {
        i64 vocabulary = 0;
        std::string out;
        words >> word >> vocabulary >> out;
        answer = trained(word, vocabulary, out);
      } else {
        size_t jobs = 1;
        words >> word >> jobs;
        answer = timed(*tokenizer, word, jobs);
      }
      std::cout << answer.dump(-1, ' ', true) << std::endl;
    }
  } catch (const Error& e) {
    std::cout << json{{"error", e.what()}}.dump(-1, ' ', true) << std::endl;
    return e.exit_status();
  }
  return 0;
}
