// Checks the directions of includes: a room (a source folder that is one library) includes only what its DEPENDS in CMakeLists.txt allow,
// and only few files include third-party headers.
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/laws/support_sources.h"

namespace spillway::laws::include_law_test {
namespace {

// Finds quoted includes that do not read room/thing.h or room/sub_room/thing.h, or that name a
// room (a folder that is one library) which the file's own room may not include.
std::vector<std::string> direction_violations(const std::vector<Source>& sources, const std::map<std::string, Room>& rooms) {
  std::vector<std::string> violations;
  for (const Source& source : sources) {
    const std::string room = room_of(source.path, rooms);
    for (const Include& include : includes_of(source)) {
      if (!include.quoted) continue;
      const std::string target = std::filesystem::path(include.header).parent_path().string();
      if (!rooms.contains(target)) {
        violations.push_back(at(source, include.line, "\"" + include.header + "\" does not read room/thing.h"));
      } else if (!rooms.at(room).may_include.contains(target)) {
        violations.push_back(at(source, include.line, room + " must not include " + target + " (" + include.header + ")"));
      }
    }
  }
  return violations;
}

TEST(IncludeLaw, RoomsIncludeOnlyWhatTheyDependOn) {
  const auto violations = direction_violations(room_sources(), rooms());
  EXPECT_TRUE(violations.empty()) << joined(violations);
}

TEST(IncludeLaw, FindsPlantedViolations) {
  const std::vector<Source> planted = {
      {"src/nn/planted.cc", "#include \"ops/products/linear.h\"\n#include \"offload/blob.h\"\n"},
      {"offload/planted.cc", "#include \"tensor/dtype.h\"\n#include \"nn/module.h\"\n#include \"blob.h\"\n"},
      {"src/trainer/settings/planted.cc",
       "#include \"trainer/node/host.h\"\n#include \"trainer/run/session.h\"\n#include \"app/entry.h\"\n"},
      {"parallel/proof/planted.cc", "#include \"parallel/program/program.h\"\n#include \"parallel/run/rank.h\"\n"},
      {"src/kernels/planted.cc", "#include \"kernels/products/gemm.h\"\n"}};
  const std::vector<std::string> expected = {
      "src/nn/planted.cc:2: nn must not include offload (offload/blob.h)",
      "offload/planted.cc:2: offload must not include nn (nn/module.h)",
      "offload/planted.cc:3: \"blob.h\" does not read room/thing.h",
      "src/trainer/settings/planted.cc:2: trainer/settings must not include trainer/run (trainer/run/session.h)",
      "src/trainer/settings/planted.cc:3: trainer/settings must not include app (app/entry.h)",
      "parallel/proof/planted.cc:2: parallel/proof must not include parallel/run (parallel/run/rank.h)",
      "src/kernels/planted.cc:1: kernels must not include kernels/products (kernels/products/gemm.h)"};
  EXPECT_EQ(direction_violations(planted, rooms()), expected);
}

// Returns the rooms (folders that are one library each) in `known` that are `top` or one of its sub-rooms.
std::vector<std::string> with_sub_rooms(const std::string& top, const std::map<std::string, Room>& known) {
  std::vector<std::string> names;
  for (const auto& [name, room] : known) {
    if (name == top || name.starts_with(top + "/")) names.push_back(name);
  }
  return names;
}

// Whatever DEPENDS in CMakeLists.txt say, these libraries and their sub-libraries must never depend on those listed after them.
TEST(IncludeLaw, DependsKeepTheArrows) {
  const std::map<std::string, std::vector<std::string>> never = {
      // these libraries lie above the models, which depend on every library below them
      {"models", {"offload", "optim", "parallel", "trainer", "app"}},
      {"data", {"kernels", "autograd", "ops", "nn"}},
      {"offload", {"kernels", "autograd", "ops", "nn", "models", "data", "optim", "parallel", "trainer", "app"}},
      {"optim", {"autograd", "ops", "nn", "models", "data", "offload", "parallel", "trainer", "app"}},
      {"parallel", {"trainer", "app"}},
      // Inside parallel, libraries that transfer bytes know no model, and libraries that make and check a plan run nothing.
      {"parallel/comm", {"parallel/sockets", "parallel/layout", "parallel/program", "autograd", "nn", "offload", "optim"}},
      {"parallel/schedule", {"parallel/comm", "parallel/layout", "parallel/program", "nn", "offload", "optim"}},
      {"parallel/plan", {"parallel/sockets", "parallel/state", "parallel/exchange", "parallel/device", "parallel/run"}},
      {"parallel/state", {"parallel/exchange", "parallel/device", "parallel/run"}},
      {"parallel/exchange", {"parallel/state", "parallel/device", "parallel/run"}},
      {"parallel/device", {"parallel/exchange", "parallel/run"}},
      // The libraries below are parts of src/trainer, which knows nothing of the program.
      {"trainer", {"app"}},
      {"trainer/node", {"trainer/settings", "trainer/plan", "trainer/ranks", "trainer/run", "parallel"}},
      {"trainer/settings", {"trainer/plan", "trainer/ranks", "trainer/run", "models"}},
      {"trainer/plan", {"trainer/ranks", "trainer/run"}},
      {"trainer/ranks", {"trainer/plan", "trainer/run"}},
      {"trainer/record", {"trainer/run"}},
      {"trainer/run", {"trainer/train"}},
      // The libraries below are parts of src/app.
      {"app/console", {"trainer/settings", "trainer/plan", "trainer/run", "app/commands"}},
      {"app/roofline", {"trainer/settings", "trainer/plan", "trainer/ranks", "trainer/run", "app/commands"}},
      {"app/report", {"app/commands"}}};
  const auto known = rooms();
  for (const auto& [top, forbidden] : never) {
    const auto insides = top == "parallel" || top == "trainer" || top == "data" ? with_sub_rooms(top, known) : std::vector{top};
    ASSERT_TRUE(!insides.empty() && known.contains(insides.front())) << top << " is no room any more";
    for (const std::string& room : insides) {
      for (const std::string& name : forbidden) {
        const auto others = with_sub_rooms(name, known);
        EXPECT_FALSE(others.empty()) << name << " is no room any more";
        for (const std::string& other : others) {
          EXPECT_FALSE(known.at(room).may_include.contains(other)) << room << " reaches " << other;
        }
      }
    }
  }
}

TEST(IncludeLaw, EveryFolderWithSourcesIsARoom) {
  const auto known = rooms();
  for (const Source& source : room_sources()) {
    const std::string folder = std::filesystem::path(source.path).parent_path().string();
    EXPECT_EQ(known.at(room_of(source.path, known)).folder, folder) << source.path << " lies in a folder that is no room";
  }
  for (const Source& source : all_sources()) {
    EXPECT_FALSE(source.path.starts_with("src/") && room_of(source.path, known).empty()) << source.path << " lies in no room";
  }
}

// Lists the files that may include a third-party header, as prefixes of their paths. "*_cuda." stands for such files in any folder.
struct ThirdParty {
  const char* header_prefix;
  std::vector<std::string> allowed;
};
const std::vector<ThirdParty> kThirdParty = {
    {"liburing", {"offload/io_uring.cc"}},
    {"isa-l", {"src/base/crc32c.cc"}},
    {"sodium.h", {"parallel/sockets/secret.cc", "src/data/documents/content_hash.cc"}},
    {"dnnl", {"src/kernels/", "bench/matmul.cc"}},
    {"oneapi/dnnl", {"src/kernels/"}},
    {"omp.h", {"src/kernels/", "bench/matmul.cc"}},
    {"hwy/",
     {"src/kernels/", "optim/", "parallel/comm/ordered_sum.cc", "tests/kernels/", "tests/optim/",
      "tests/parallel/comm/ordered_sum_test.cc"}},
    {"mpi.h", {"parallel/comm/communicator_mpi.cc", "bench/communicator_mpi.cc"}},
    {"nccl", {"*_cuda.", "tests/emulated_cuda/"}},
    {"cuda",
     {"src/device/", "*_cuda.", "tests/device/handle_cuda_test.cc", "tests/device/emulated_cuda_test.cc", "tests/kernels/sequence/cudnn",
      "tests/emulated_cuda/", "tests/ptx/launch.cc"}},
    {"cublas", {"*_cuda.", "tests/emulated_cuda/"}},
    {"cudnn", {"tests/kernels/sequence/cudnn"}},
    {"zip.h", {"src/data/torch/torch_archive.cc"}},
    {"protozero/", {"src/models/onnx/graph.cc", "tests/models/onnx/"}},
    {"png.h", {"src/data/images/picture.cc"}},
    {"turbojpeg.h", {"src/data/images/picture.cc"}},
    {"zlib.h", {"src/data/", "tests/data/"}},
    {"zstd.h", {"src/data/", "tests/data/", "tests/ptx/fat_binary.cc"}},
    {"pcre2.h", {"src/data/tokenizer/stages/regex.cc"}},
    {"utf8proc.h", {"src/data/text/"}},
    {"nlohmann/",
     {"src/base/json.", "src/data/", "src/models/families/", "src/models/config_write.cc", "src/models/export/",
      "src/models/gguf/gguf_tokenizer.cc", "src/models/lora_config.cc", "src/trainer/", "src/app/", "python/module/reports.cc", "tests/"}},
    {"nanobind/", {"python/module/"}},
    {"gtest/", {"tests/"}},
    {"gmock/", {"tests/"}},
    {"benchmark/", {"bench/"}},
};

bool is_allowed(const std::string& path, const std::vector<std::string>& allowed) {
  for (const std::string& rule : allowed) {
    if (rule.starts_with("*") ? path.find(rule.substr(1)) != std::string::npos : path.starts_with(rule)) return true;
  }
  return false;
}

std::vector<std::string> third_party_violations(const std::vector<Source>& sources) {
  std::vector<std::string> violations;
  for (const Source& source : sources) {
    for (const Include& include : includes_of(source)) {
      for (const ThirdParty& rule : kThirdParty) {
        if (!include.quoted && include.header.starts_with(rule.header_prefix) && !is_allowed(source.path, rule.allowed)) {
          violations.push_back(at(source, include.line, "<" + include.header + "> is for the files that kThirdParty lists"));
        }
      }
    }
  }
  return violations;
}

TEST(IncludeLaw, ThirdPartyHeadersStayBehindTheirFiles) {
  const auto violations = third_party_violations(all_sources());
  EXPECT_TRUE(violations.empty()) << joined(violations);
}

TEST(IncludeLaw, FindsPlantedThirdPartyHeaders) {
  const std::vector<Source> planted = {{"offload/blob.cc", "#include <liburing.h>\n"},
                                       {"offload/io_uring.cc", "#include <liburing.h>\n"},
                                       {"src/ops/products/linear.cc", "#include <vector>\n#include <cuda_runtime.h>\n"},
                                       {"src/kernels/gemm_cuda.cu", "#include <cuda_runtime.h>\n"}};
  const std::vector<std::string> expected = {"offload/blob.cc:1: <liburing.h> is for the files that kThirdParty lists",
                                             "src/ops/products/linear.cc:2: <cuda_runtime.h> is for the files that kThirdParty lists"};
  EXPECT_EQ(third_party_violations(planted), expected);
}

// nlohmann's JSON adds seconds to the compilation of every file that includes it, so only the header made for that purpose may pass it on.
TEST(IncludeLaw, HeadersDoNotSpreadJson) {
  for (const Source& source : room_sources()) {
    if (!source.path.ends_with(".h") || source.path == "src/models/families/config_json.h") continue;
    for (const Include& include : includes_of(source)) {
      EXPECT_FALSE(include.header.starts_with("nlohmann/json.hpp")) << source.path;
    }
  }
}

}  // namespace
}  // namespace spillway::laws::include_law_test
