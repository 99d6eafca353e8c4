// Fuzzes config.json and adapter_config.json: whatever they contain, they are read or refused
// with Error(data). A config that is read can be written and read back as an equal one.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

#include "base/error.h"
#include "models/lora.h"
#include "tests/support/fixtures.h"

namespace spillway::models::config_fuzz_test {
namespace {

using Json = nlohmann::ordered_json;
using Random = std::mt19937_64;

size_t below(Random& random, size_t n) { return random() % n; }

std::string text_of(const std::string& file) {
  std::ifstream in(test::data(file));
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

Json any_value(Random& random) {
  static const std::vector<Json> kValues = {nullptr,
                                            true,
                                            false,
                                            0,
                                            1,
                                            -1,
                                            2,
                                            7,
                                            0.5,
                                            -0.0,
                                            1e300,
                                            1e-300,
                                            i64{1} << 62,
                                            ~u64{0},
                                            "",
                                            "auto",
                                            "LORA",
                                            "all-linear",
                                            "gelu",
                                            "yarn",
                                            Json::array(),
                                            Json::object(),
                                            Json::array({1, "q_proj", nullptr}),
                                            Json{{"rope_type", "yarn"}, {"factor", 2}},
                                            "\xe4\xb8\x96"};
  return kValues[below(random, kValues.size())];
}

// Changes one random value of `json`: the value is replaced, removed, or copied from the file `other`.
void mutate(Json& json, Random& random, const Json& other) {
  Json* at = &json;
  while (at->is_structured() && !at->empty() && below(random, 5) != 0)
    at = &*std::next(at->begin(), static_cast<std::ptrdiff_t>(below(random, at->size())));
  if (at == &json) {
    const auto from = std::next(other.begin(), static_cast<std::ptrdiff_t>(below(random, other.size())));
    if (below(random, 2) == 0) {
      json[from.key()] = from.value();
    } else if (!json.empty()) {
      json.erase(std::next(json.begin(), static_cast<std::ptrdiff_t>(below(random, json.size()))));
    }
    return;
  }
  *at = any_value(random);
}

void damage(std::string& text, Random& random) {
  const size_t at = below(random, text.size());
  switch (below(random, 3)) {
    case 0:
      text[at] = static_cast<char>(random());
      break;
    case 1:
      text.resize(at);
      break;
    default:
      text.insert(at, text.substr(below(random, text.size()), below(random, 20)));
  }
}

constexpr const char* kConfigs[] = {"gpt2-tiny",        "llama-tiny", "llama3rope-tiny", "qwen2-tiny",          "qwen3-tiny",
                                    "mistral-tiny",     "phi3-tiny",  "mixtral-tiny",    "mistral-window-tiny", "gemma2-tiny",
                                    "gemma3-text-tiny", "olmo2-tiny", "qwen3-moe-tiny",  "phi3-partial-tiny"};
constexpr const char* kAdapters[] = {"llama-qv", "llama-qv-rslora", "llama-all-linear", "gpt2-attn", "gpt2-all-linear"};

// Parses `text` and returns whether it was read. A refusal must be an Error(data).
template <class Parse>
bool survives(const std::string& text, const Parse& parse) {
  try {
    parse(text);
    return true;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::data) << error.what() << "\n" << text;
    EXPECT_NE(std::string(error.what()).find("some/file.json"), std::string::npos) << error.what();
    return false;
  }
}

template <class Parse>
void fuzz(const std::vector<std::string>& seeds, u64 seed, int cases, const Parse& parse) {
  Random random(seed);
  int read = 0;
  for (int i = 0; i < cases; ++i) {
    std::string text = seeds[below(random, seeds.size())];
    if (i % 4 == 0) {
      damage(text, random);
    } else {
      Json json = Json::parse(text);
      for (size_t n = 1 + below(random, 3); n > 0; --n) mutate(json, random, Json::parse(seeds[below(random, seeds.size())]));
      text = json.dump();
    }
    read += survives(text, parse);
  }
  EXPECT_GT(read, cases / 20) << "the fuzzer seldom gets beyond the first key";
  EXPECT_LT(read, cases);
}

void fuzz_configs(u64 seed, int cases) {
  std::vector<std::string> seeds;
  for (const char* name : kConfigs) seeds.push_back(text_of(std::string(name) + "/config.json"));
  for (const std::string& family : test::family_folders()) seeds.push_back(text_of(family + "/config.json"));
  fuzz(seeds, seed, cases, [](const std::string& text) {
    const ModelConfig config = parse_config(text, "some/file.json");
    EXPECT_TRUE(parse_config(to_json(config), "written") == config) << text << "\n" << to_json(config);
  });
}

void fuzz_adapters(u64 seed, int cases) {
  std::vector<std::string> seeds;
  for (const char* name : kAdapters) seeds.push_back(text_of("lora/" + std::string(name) + "/adapter_config.json"));
  fuzz(seeds, seed, cases, [](const std::string& text) {
    ModelConfig config;
    config.lora = parse_adapter_config(text, "some/file.json");
    if (config.lora->targets.empty()) return;
    EXPECT_TRUE(parse_adapter_config(adapter_json(config, config.lora->targets, "base"), "written") == *config.lora) << text;
  });
}

TEST(ConfigFuzz, ConfigsAreReadOrRefused) { fuzz_configs(1, 3000); }
TEST(ConfigFuzz, AdapterConfigsAreReadOrRefused) { fuzz_adapters(1, 3000); }
TEST(SoakConfigFuzz, ConfigsAreReadOrRefused) { fuzz_configs(2, 300'000); }
TEST(SoakConfigFuzz, AdapterConfigsAreReadOrRefused) { fuzz_adapters(2, 300'000); }

}  // namespace
}  // namespace spillway::models::config_fuzz_test
