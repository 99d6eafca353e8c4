#include "models/onnx/export.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <protozero/pbf_reader.hpp>
#include <set>

#include "base/error.h"
#include "models/onnx/graph.h"
#include "tests/support/fixtures.h"
#include "tests/support/temporary_folder.h"

// Tests exported ONNX graphs by reading their bytes. python/tests/test_onnx.py shows
// what onnxruntime computes from the graphs. The field numbers are those of onnx.proto.
namespace spillway::models::onnx::export_test {
namespace {

struct External {
  std::string name;
  std::vector<i64> shape;
  i64 offset = -1, length = -1;
};

// Holds the parts of an exported graph that a reader relies on.
struct ReadGraph {
  std::set<std::string> known;  // the names that nodes may read: inputs, initializers and outputs of earlier nodes
  std::vector<std::string> outputs, unknown;
  std::vector<External> external;
  i64 nodes = 0;
};

std::string read_all(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void read_initializer(protozero::pbf_reader tensor, ReadGraph& graph) {
  External read;
  bool external = false;
  while (tensor.next()) {
    if (tensor.tag() == 1) {
      read.shape.push_back(tensor.get_int64());
    } else if (tensor.tag() == 8) {
      read.name = tensor.get_string();
    } else if (tensor.tag() == 13) {
      protozero::pbf_reader entry = tensor.get_message();
      std::string key, value;
      while (entry.next()) {
        std::string& text = entry.tag() == 1 ? key : value;  // the text is stored now, since reading a value forgets the tag
        text = entry.get_string();
      }
      if (key == "offset") read.offset = std::stoll(value);
      if (key == "length") read.length = std::stoll(value);
      EXPECT_TRUE(key != "location" || value == "model.onnx.data") << value;
    } else if (tensor.tag() == 14) {
      external = tensor.get_enum() == 1;
    } else {
      tensor.skip();
    }
  }
  EXPECT_TRUE(graph.known.insert(read.name).second) << read.name;
  if (external) graph.external.push_back(read);
}

ReadGraph read_graph(const std::filesystem::path& folder) {
  ReadGraph graph;
  const std::string bytes = read_all(folder / "model.onnx");
  protozero::pbf_reader model(bytes);
  protozero::pbf_reader body;
  while (model.next()) {
    if (model.tag() == 7) {
      body = model.get_message();
    } else {
      model.skip();
    }
  }
  std::vector<protozero::pbf_reader> nodes;
  while (body.next()) {
    const auto tag = body.tag();
    if (tag == 1) {
      nodes.push_back(body.get_message());
    } else if (tag == 5) {
      read_initializer(body.get_message(), graph);
    } else if (tag == 11 || tag == 12) {
      protozero::pbf_reader info = body.get_message();
      info.next(1);
      const std::string name = info.get_string();
      if (tag == 11) graph.known.insert(name);
      if (tag == 12) graph.outputs.push_back(name);
    } else {
      body.skip();
    }
  }
  for (protozero::pbf_reader& node : nodes) {
    ++graph.nodes;
    std::vector<std::string> made;
    while (node.next()) {
      if (node.tag() == 1) {
        const std::string input = node.get_string();
        if (!graph.known.contains(input)) graph.unknown.push_back(input);
      } else if (node.tag() == 2) {
        made.push_back(node.get_string());
      } else {
        node.skip();
      }
    }
    for (const std::string& name : made) EXPECT_TRUE(graph.known.insert(name).second) << name;
  }
  for (const std::string& name : graph.outputs) {
    if (!graph.known.contains(name)) graph.unknown.push_back(name);
  }
  return graph;
}

const char* const kModels[] = {"gpt2-tiny",      "llama-tiny",       "gemma3-text-tiny", "phi3-partial-tiny", "mixtral-tiny",
                               "qwen3-moe-tiny", "families/cohere2", "families/glm4",    "families/granite",  "families/smollm3"};

TEST(OnnxExport, RotaryPositionsThatDependOnTheRowAreRefused) {
  for (const char* name : {"families/ministral3", "families/phi3-longrope"}) {
    const test::TemporaryFolder folder;
    const PlainModel model(read_config(test::data(name)), test::data(name));
    try {
      export_onnx(model, folder.path(), "fp32");
      ADD_FAILURE() << name;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::usage);
      EXPECT_NE(std::string(error.what()).find("--format hf"), std::string::npos) << error.what();
    }
  }
}

TEST(OnnxExport, EveryValueIsMadeBeforeItIsReadAndWeightsLieWhereItSays) {
  for (const char* name : kModels) {
    const test::TemporaryFolder folder;
    const PlainModel model(read_config(test::data(name)), test::data(name));
    const ExportResult written = export_onnx(model, folder.path(), "fp32");
    EXPECT_EQ(written.tensors, std::ssize(model.model().parameters));
    const ReadGraph graph = read_graph(folder.path());
    EXPECT_TRUE(graph.unknown.empty()) << name << ": " << graph.unknown.front();
    EXPECT_EQ(graph.outputs.size(), static_cast<size_t>(1 + 2 * model.config().layers));
    EXPECT_GT(graph.nodes, 20 * model.config().layers);

    const std::string data = read_all(folder / "model.onnx.data");
    ASSERT_EQ(graph.external.size(), model.model().parameters.size());
    i64 end = 0;
    for (size_t i = 0; i < graph.external.size(); ++i) {
      const External& at = graph.external[i];
      const nn::Parameter& p = *model.model().parameters[i];
      EXPECT_EQ(at.name, p.name);
      ASSERT_EQ(at.length, p.elems() * 4);
      EXPECT_EQ(at.offset % 64, 0);
      EXPECT_GE(at.offset, end);
      end = at.offset + at.length;
      ASSERT_LE(end, std::ssize(data));
      std::vector<double> want(static_cast<size_t>(p.elems()));
      model.weights().read(p, 0, want);
      for (size_t e = 0; e < want.size(); ++e) {
        float got = 0;
        std::memcpy(&got, data.data() + at.offset + static_cast<i64>(e) * 4, 4);
        ASSERT_EQ(got, static_cast<float>(want[e])) << p.name << " " << e;
      }
    }
    EXPECT_EQ(end, std::ssize(data));
  }
}

TEST(OnnxExport, EqualWeightsGiveEqualBytesAndHalvesTakeHalf) {
  const PlainModel model(read_config(test::data("qwen3-tiny")), test::data("qwen3-tiny"));
  const test::TemporaryFolder one, other, half;
  export_onnx(model, one.path(), {});
  export_onnx(model, other.path(), "fp32");
  export_onnx(model, half.path(), "fp16");
  for (const char* file : {"model.onnx", "model.onnx.data", "config.json"}) {
    EXPECT_EQ(read_all(one / file), read_all(other / file)) << file;
    EXPECT_FALSE(read_all(one / file).empty());
  }
  EXPECT_NE(read_all(one / "model.onnx"), read_all(half / "model.onnx"));
  EXPECT_LT(read_all(half / "model.onnx.data").size(), 6 * read_all(one / "model.onnx.data").size() / 10);
}

TEST(OnnxExport, RefusesOtherTypes) {
  const PlainModel model(read_config(test::data("llama-tiny")), test::data("llama-tiny"));
  const test::TemporaryFolder folder;
  try {
    export_onnx(model, folder.path(), "bf16");
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::usage);
    EXPECT_NE(std::string(error.what()).find("expected fp32 or fp16"), std::string::npos);
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

// A graph that does not use one of the model's parameters computes another function, so it must not be written.
TEST(OnnxGraph, NoticesAWeightThatIsNotUsed) {
  const PlainModel model(read_config(test::data("llama-tiny")), test::data("llama-tiny"));
  const test::TemporaryFolder folder;
  Graph graph(model, DType::f32);
  graph.weight("model.embed_tokens.weight");
  EXPECT_THROW(graph.write(folder.path()), Error);
  EXPECT_THROW(graph.weight("model.embed_tokens.wait"), Error);
}

}  // namespace
}  // namespace spillway::models::onnx::export_test
