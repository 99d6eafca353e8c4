// Tests weight files that no program writes: small files that repeat so much that reading all
// of it would take gigabytes or hours. Each is read or refused with Error(data). Before readers
// had budgets, the files that are now refused were read for minutes or until memory ran out.
#include <gmock/gmock.h>
#include <sys/stat.h>

#include "data/torch/torch_archive.h"
#include "data/weights/weight_folder.h"
#include "data/weights/zero_files.h"
#include "tests/data/support_files.h"
#include "tests/data/weights/support_pickles.h"
#include "tests/support/fixtures.h"

namespace spillway::data::hostile_weights_test {
namespace {

namespace fs = std::filesystem;
using namespace spillway::test;
using namespace spillway::test::pickles;
using testing::AllOf;
using testing::HasSubstr;

constexpr const char *kTooOften = "visits its values more often than", *kTooMuch = "takes more memory than";

std::vector<std::string> many(size_t count, const std::function<std::string(size_t)>& each) {
  std::vector<std::string> all;
  for (size_t i = 0; i < count; ++i) all.push_back(each(i));
  return all;
}

// Returns the message with which a torch.save file that contains `value` is refused.
std::string torch_refusal(const std::string& value, const Members& storages = {{"0", std::string(4, '\0')}}) {
  const TemporaryFolder folder;
  const auto path = put(folder / "x.bin", torch_file(value, storages));
  return error_of(ErrorCode::data, [&] { TorchFile file(path); });
}

TEST(HostileTorchFile, SharedDictionariesAreNotVisitedWithoutEnd) {
  constexpr size_t kMany = 3000;
  const std::string inner = kept(dict({repeated(text("k") + none, kMany)}), 0);
  EXPECT_THAT(torch_refusal(inner + dict({repeated(text("k") + get(0), kMany)})), HasSubstr(kTooOften));
  // The file nests dictionaries of 8 entries each, in which every value is the next dictionary. Reading all would take 8^8 visits.
  std::string nested = kept(dict({text("k"), none}), 0);
  for (u32 depth = 1; depth < 9; ++depth) nested += kept(dict({repeated(text("k") + get(depth - 1), 8)}), depth);
  EXPECT_THAT(torch_refusal(nested + get(8)), HasSubstr(kTooOften));
}

TEST(HostileTorchFile, ADictionaryThatContainsItselfNestsTooDeeply) {
  EXPECT_THAT(torch_refusal("}" + put(0) + text("a") + get(0) + "s"), HasSubstr("nested too deeply"));
  const std::string ordered = call(global("collections", "OrderedDict"), {}) + put(0);
  EXPECT_THAT(torch_refusal(ordered + text("a") + get(0) + "s"), HasSubstr("nested too deeply"));
  // A value that is neither a dictionary nor a tensor is skipped, even a list that contains itself.
  const TemporaryFolder folder;
  const auto path = put(folder / "x.bin", torch_file(dict({text("a"), "]" + put(0) + get(0) + "a", text("b"), tensor()})));
  EXPECT_EQ(TorchFile(path).tensors().size(), 1u);
}

TEST(HostileTorchFile, NamesAreNotCopiedWithoutEnd) {
  const std::string name = kept(text(std::string(1'000'000, 'n')), 0), one = kept(tensor(), 1);
  EXPECT_THAT(torch_refusal(name + one + dict({repeated(get(0) + get(1), 8000)})), HasSubstr("two tensors have the name \"nnnn"));
  // Each tensor has a different name, and all names begin with a long prefix. All names together would take too much memory.
  const std::string inner = dict(many(200, [](size_t i) { return text(std::to_string(i)) + get(1); }));
  EXPECT_THAT(torch_refusal(name + one + dict({get(0), inner})), HasSubstr(kTooMuch));
  EXPECT_THAT(torch_refusal(name + dict({repeated(get(0) + none, 8000)})), HasSubstr(kTooOften));
  const TemporaryFolder folder;  // a single tensor with such a long name is accepted
  EXPECT_EQ(TorchFile(put(folder / "x.bin", torch_file(name + one + dict({get(0), get(1)})))).tensors()[0].name.size(), 1'000'000u);
}

TEST(HostileTorchFile, OneTensorIsNotMadeWithoutEnd) {
  // One tensor with 64 axes is listed under tens of thousands of names, which takes too much memory.
  const std::string one = kept(tensor({.sizes = std::vector<i64>(64, 1), .strides = std::vector<i64>(64, 1)}), 0);
  const auto names = [&](size_t count) { return dict(many(count, [](size_t i) { return text(std::to_string(i)) + get(0); })); };
  EXPECT_THAT(torch_refusal(one + names(20'000)), HasSubstr(kTooMuch));
}

TEST(HostileTorchFile, ShapesBeyondAnyTensorAreRefused) {
  const auto refusal = [](std::vector<i64> sizes, std::vector<i64> strides, i64 offset = 0) {
    return torch_refusal(dict({text("w"), tensor({.offset = offset, .sizes = std::move(sizes), .strides = std::move(strides)})}));
  };
  constexpr i64 kHuge = i64{1} << 62;
  for (const auto& sizes : {std::vector<i64>{i64{1} << 57}, {kHuge, 2}, {kHuge, kHuge, 0}, {0, kHuge}, {i64{1} << 30, i64{1} << 30}})
    EXPECT_THAT(refusal(sizes, std::vector<i64>(sizes.size(), 0)), HasSubstr("tensor \"w\": expected at most"))
        << testing::PrintToString(sizes);
  EXPECT_THAT(refusal({-1}, {1}), HasSubstr("expected sizes, strides and an offset of 0 or more"));
  EXPECT_THAT(refusal({1}, {-1}), HasSubstr("expected sizes, strides and an offset of 0 or more"));
  EXPECT_THAT(refusal({1}, {1}, -1), HasSubstr("expected sizes, strides and an offset of 0 or more"));
  EXPECT_THAT(refusal({3, 3}, {kHuge, kHuge}), HasSubstr("its storage of"));
  EXPECT_THAT(refusal({2}, {1}), HasSubstr("its storage of 1 elements"));
  EXPECT_THAT(refusal({1}, {1}, kHuge), HasSubstr("its storage of"));
  EXPECT_THAT(refusal({1, 1}, {1}), HasSubstr("stride for each size"));
  // The sizes of all tensors of the file together need more than 64 bits.
  const std::string large = kept(tensor({.sizes = {i64{1} << 56}, .strides = {0}}), 0);
  EXPECT_THAT(torch_refusal(large + dict(many(64, [](size_t i) { return text(std::to_string(i)) + get(0); }))),
              HasSubstr("have more than 2^63 bytes"));
}

// A stride of 0 repeats elements, so a file of a kilobyte could take years to read. A tensor that repeats too much is refused.
TEST(HostileTorchFile, AnElementIsNotReadWithoutEnd) {
  const TemporaryFolder folder;
  constexpr i64 kLarge = 10'000;  // the number of floats, which is more than a reader reads in one piece
  const auto of_one = [](std::vector<i64> sizes) { return tensor({.sizes = sizes, .strides = std::vector<i64>(sizes.size(), 0)}); };
  const auto of_large = [](i64 times) { return tensor({.key = "1", .sizes = {times, kLarge}, .strides = {0, 1}}); };
  const TorchFile file(put(folder / "x.bin", torch_file(dict({text("few"), of_one({1 << 15, 1 << 10}), text("many"),
                                                              of_one({1 << 15, 1025}), text("16"), of_large(16), text("17"), of_large(17)}),
                                                        {{"0", raw<float>({2.5})}, {"1", raw(std::vector<float>(kLarge, 1.5))}})));
  std::vector<double> values(20'000);
  file.read_wide(*file.find("few"), 5, values);
  EXPECT_THAT(values, testing::Each(2.5));
  file.read_wide(*file.find("16"), 5, values);
  EXPECT_THAT(values, testing::Each(1.5));
  const auto refusal = [&](const char* name) { return error_of(ErrorCode::data, [&] { file.read_wide(*file.find(name), 0, values); }); };
  EXPECT_THAT(refusal("many"), HasSubstr("1 elements of its storage, got 33587200"));
  EXPECT_THAT(refusal("17"), HasSubstr("10000 elements of its storage, got 170000"));
}

// A storage that claims more bytes than its file has is refused. An expanded tensor could otherwise pass as one without repetition.
TEST(HostileTorchFile, AStorageHasNoMoreBytesThanTheFile) {
  const TemporaryFolder folder;
  const Members members{{"archive/data.pkl", pickle(dict({text("w"), tensor({.sizes = {3}})}))}, {"archive/data/0", std::string(12, 'x')}};
  EXPECT_EQ(TorchFile(put(folder / "x.bin", archive(members))).tensors().size(), 1u);
  EXPECT_THAT(error_of(ErrorCode::data, [&] { TorchFile file(put(folder / "x.bin", archive(members, 1 << 20))); }),
              testing::AnyOf(HasSubstr("more than the file holds"), HasSubstr("torch.save")));
}

// The functions below build the content of a .metadata file of torch.distributed.checkpoint.
std::string torch_size(const std::vector<i64>& sizes) { return call(global("torch", "Size"), {numbers(sizes)}); }
std::string of_metadata(const std::string& name, const std::vector<std::string>& attributes) {
  return object(global("torch.distributed.checkpoint.metadata", name), attributes);
}
std::string chunk(const std::vector<i64>& offsets, const std::vector<i64>& sizes) {
  return of_metadata("ChunkStorageMetadata", {text("offsets"), torch_size(offsets), text("sizes"), torch_size(sizes)});
}
std::string of_tensor(const std::vector<i64>& sizes, const std::string& chunks) {
  return of_metadata("TensorStorageMetadata", {text("size"), torch_size(sizes), text("chunks"), chunks});
}
std::string place(const std::string& name, const std::vector<i64>& offsets, const std::string& file, i64 begin, i64 bytes) {
  return of_metadata("MetadataIndex", {text("fqn"), name, text("offset"), torch_size(offsets)}) +
         of_metadata("_StorageInfo", {text("relative_path"), text(file), text("offset"), number(begin), text("length"), number(bytes)});
}
std::string metadata(const std::string& tensors, const std::string& places, const std::string& paths = dict({})) {
  return of_metadata("Metadata", {text("state_dict_metadata"), tensors, text("planner_data"), paths, text("storage_data"), places});
}
struct Saved {
  TemporaryFolder at;
  explicit Saved(const std::string& before, const std::string& all) { put(at / ".metadata", pickle(before + all)); }
  std::string refusal() const {
    return error_of(ErrorCode::data, [&] { DistributedCheckpoint checkpoint(at.path()); });
  }
};
// Holds a file for two blocks, of two elements each, of a tensor "w" of shape [4].
const std::string kFirst = torch_file(tensor({.sizes = {2}}), {{"0", std::string(8, '\0')}});
std::string two_places() {
  const auto bytes = static_cast<i64>(kFirst.size());
  return dict({place(text("w"), {0}, "a", 0, bytes), place(text("w"), {2}, "a", bytes, bytes)});
}

TEST(HostileDistributedCheckpoint, AnHonestOneIsRead) {
  const Saved saved("", metadata(dict({text("w"), of_tensor({4}, list({chunk({0}, {2}), chunk({2}, {2})}))}), two_places()));
  put(saved.at / "a", kFirst + kFirst);
  const DistributedCheckpoint checkpoint(saved.at.path());
  ASSERT_EQ(checkpoint.tensors().size(), 1u);
  std::vector<double> values(4, -1);
  checkpoint.read_wide(checkpoint.tensors()[0], 0, values);
  EXPECT_THAT(values, testing::Each(0));
}

// No file with blocks exists, so each refusal is based on the metadata alone.
TEST(HostileDistributedCheckpoint, RepeatedBlocksAreRefusedBeforeAFileIsOpened) {
  const std::string first = kept(chunk({0}, {2}), 0);
  const Saved repeated_block(first, metadata(dict({text("w"), of_tensor({4}, list({repeated(get(0), 100'000)}))}), two_places()));
  EXPECT_THAT(repeated_block.refusal(), testing::AnyOf(HasSubstr("tensor \"w\": its blocks overlap"), HasSubstr(kTooMuch)));
  const Saved missing("", metadata(dict({text("w"), of_tensor({4}, list({chunk({0}, {2})}))}), two_places()));
  EXPECT_THAT(missing.refusal(), HasSubstr("2 of its 4 elements"));
  const Saved twice("", metadata(dict({text("w"), of_tensor({4}, list({chunk({0}, {2}), chunk({0}, {2})}))}), two_places()));
  EXPECT_THAT(twice.refusal(), HasSubstr("its blocks overlap or leave a gap at element 0"));
  const Saved outside("", metadata(dict({text("w"), of_tensor({4}, list({chunk({3}, {2})}))}), two_places()));
  EXPECT_THAT(outside.refusal(), HasSubstr("beyond the tensor"));
  const Saved huge("", metadata(dict({text("w"), of_tensor({i64{1} << 57}, list({}))}), two_places()));
  EXPECT_THAT(huge.refusal(), HasSubstr("expected at most"));
  const Saved negative("", metadata(dict({text("w"), of_tensor({-4}, list({}))}), two_places()));
  EXPECT_THAT(negative.refusal(), HasSubstr("0 or more"));
  // A block of one column and 2^24 rows needs a piece for each row. Its file does not exist, so the refusal comes before reading.
  const Saved cut("", metadata(dict({text("w"), of_tensor({1 << 24, 2}, list({chunk({0, 0}, {1 << 24, 1}), chunk({0, 1}, {1 << 24, 1})}))}),
                               two_places()));
  EXPECT_THAT(cut.refusal(), HasSubstr(kTooMuch));
}

TEST(HostileDistributedCheckpoint, SharedListsAndNamesAreNotVisitedWithoutEnd) {
  // A thousand tensors share one list of a thousand empty blocks. Reading stops at the first block.
  const std::string blocks = kept(list({repeated(chunk({0}, {0}), 1000)}), 0);
  const Saved lists(blocks,
                    metadata(dict(many(1000, [](size_t i) { return text(std::to_string(i)) + of_tensor({0}, get(0)); })), two_places()));
  EXPECT_THAT(lists.refusal(), HasSubstr("a block of tensor \"0\""));
  const std::string name = kept(text(std::string(1'000'000, 'n')), 0);
  const auto places = dict(many(3000, [](size_t i) { return place(get(0), {static_cast<i64>(i)}, "a", static_cast<i64>(i), 1); }));
  EXPECT_THAT(Saved(name, metadata(dict({}), places)).refusal(), HasSubstr(kTooOften));
  // Thousands of tensors share one object with thousands of attributes, which takes too many steps.
  const std::string object = kept(of_metadata("TensorStorageMetadata", {repeated(text("a") + none, 5000)}), 0);
  const Saved attributes(object, metadata(dict({repeated(text("w") + get(0), 5000)}), two_places()));
  EXPECT_THAT(attributes.refusal(), HasSubstr(kTooOften));
  // Thousands of names share one long path, which takes too many steps.
  const std::string path = kept(tuple({repeated(text("a"), 5000)}), 0);
  const Saved paths(path, metadata(dict(many(5000, [](size_t i) { return text(std::to_string(i)) + of_tensor({0}, list({})); })),
                                   two_places(), dict(many(5000, [](size_t i) { return text(std::to_string(i)) + get(0); }))));
  EXPECT_THAT(paths.refusal(), testing::AnyOf(HasSubstr(kTooOften), HasSubstr("two tensors have the name \"a\"")));
}

TEST(HostileDistributedCheckpoint, EveryBlockHasBytesOfItsOwn) {
  const auto bytes = static_cast<i64>(kFirst.size());
  const auto tensors = dict({text("w"), of_tensor({4}, list({chunk({0}, {2}), chunk({2}, {2})}))});
  for (const i64 second : {i64{0}, i64{1}, bytes - 1}) {
    const Saved saved("", metadata(tensors, dict({place(text("w"), {0}, "a", 0, bytes), place(text("w"), {2}, "a", second, bytes)})));
    put(saved.at / "a", kFirst + kFirst);
    EXPECT_THAT(saved.refusal(), HasSubstr("do not overlap in \"a\"")) << second;
  }
  constexpr i64 kHuge = std::numeric_limits<i64>::max();
  const Saved beyond("", metadata(tensors, dict({place(text("w"), {0}, "a", 0, bytes), place(text("w"), {2}, "a", kHuge, kHuge)})));
  put(beyond.at / "a", kFirst + kFirst);
  EXPECT_THAT(beyond.refusal(), HasSubstr("expected 9223372036854775807 bytes at offset 9223372036854775807"));
}

// A block whose file repeats elements (stride 0) is refused. A few blocks of a kilobyte would otherwise be read as a million elements.
TEST(HostileDistributedCheckpoint, ABlockRepeatsNoElements) {
  const std::string one = torch_file(tensor({.sizes = {1000}, .strides = {0}}));
  const Saved saved("", metadata(dict({text("w"), of_tensor({1000}, list({chunk({0}, {1000})}))}),
                                 dict({place(text("w"), {0}, "a", 0, static_cast<i64>(one.size()))})));
  put(saved.at / "a", one);
  EXPECT_THAT(saved.refusal(), HasSubstr("got only 1, which the block repeats"));
}

TEST(HostileDistributedCheckpoint, ReferencesInCirclesAreRefused) {
  for (const std::string& circle : {"]" + put(0) + get(0) + "a", "}" + put(0) + text("chunks") + get(0) + "s",
                                    global("torch.distributed.checkpoint.metadata", "Metadata") + ")\x81" + put(0) + "}" + text("chunks") +
                                        get(0) + "s" + text("size") + get(0) + "s" + text("offset") + get(0) + "s" + "b"}) {
    EXPECT_NE(Saved("", circle).refusal(), "");
    EXPECT_NE(Saved(circle + "0", metadata(get(0), get(0), get(0))).refusal(), "");
    EXPECT_NE(Saved(circle + "0", metadata(dict({text("w"), get(0)}), dict({get(0), get(0)}))).refusal(), "");
    EXPECT_NE(Saved(circle + "0", metadata(dict({text("w"), of_tensor({0}, list({get(0)}))}), two_places())).refusal(), "");
  }
  // A tuple that contains itself gives the size of a tensor. The file must be refused.
  const std::string size = global("torch", "Size") + "(]" + put(0) + "t" + "R" + put(1) + "0" + get(0) + get(1) + "a0";
  const Saved own(size, metadata(dict({text("w"), of_metadata("T", {text("size"), get(1), text("chunks"), list({})})}), two_places()));
  EXPECT_NE(own.refusal(), "");
}

// Writes a DeepSpeed checkpoint of one rank and one parameter group.
struct Zero {
  TemporaryFolder at;
  std::string model(const std::vector<std::string>& more) const {
    std::vector<std::string> all{text("global_steps"), number(1)};
    all.insert(all.end(), more.begin(), more.end());
    return dict(all);
  }
  std::string optimizer(const std::vector<std::string>& more, const std::string& weights = list({tensor()}), int stage = 1) const {
    std::vector<std::string> all{text("zero_stage"),
                                 number(stage),
                                 text("partition_count"),
                                 number(1),
                                 text(stage == 3 ? "fp32_flat_groups" : "single_partition_of_fp32_groups"),
                                 weights};
    all.insert(all.end(), more.begin(), more.end());
    return dict({text("optimizer_state_dict"), dict(all)});
  }
  void write(const std::string& model, const std::string& optimizer, const Members& storages = {{"0", std::string(4, '\0')}}) const {
    put(at / "mp_rank_00_model_states.pt", torch_file(model, storages));
    put(at / "zero_pp_rank_0_mp_rank_00_optim_states.pt", torch_file(optimizer, storages));
  }
  std::string refusal() const {
    return error_of(ErrorCode::data, [&] { ZeroCheckpoint checkpoint(at.path()); });
  }
  static std::string shapes(const std::vector<std::string>& of) { return list({dict(of)}); }
};
const std::string kShapes = "param_shapes";

TEST(HostileZeroCheckpoint, AnHonestOneIsRead) {
  const Zero zero;
  zero.write(zero.model({text(kShapes), zero.shapes({text("w"), torch_size({1})})}), zero.optimizer({}));
  EXPECT_EQ(ZeroCheckpoint(zero.at.path()).tensors().size(), 1u);
}

TEST(HostileZeroCheckpoint, HugePaddingsAndShapesAreRefused) {
  const auto refusal = [](const std::vector<i64>& size, const std::string& paddings, int stage = 1) {
    const Zero zero;
    zero.write(zero.model({text(kShapes), zero.shapes({text("v"), torch_size({1}), text("w"), torch_size(size)})}),
               zero.optimizer({text("param_alignment_paddings"), paddings}, list({tensor()}), stage));
    return zero.refusal();
  };
  constexpr i64 kHuge = std::numeric_limits<i64>::max();
  for (const int stage : {1, 3}) {
    EXPECT_THAT(refusal({1}, list({numbers({kHuge, kHuge})}), stage), HasSubstr("files of one save")) << stage;
    EXPECT_THAT(refusal({1}, list({numbers({-5, -kHuge})}), stage), HasSubstr("files of one save")) << stage;
    EXPECT_THAT(refusal({i64{1} << 56}, list({}), stage), HasSubstr("more elements than")) << stage;
    EXPECT_THAT(refusal({i64{1} << 57}, list({}), stage), HasSubstr("the shape of \"w\" has too many elements")) << stage;
    EXPECT_THAT(refusal({0, kHuge, kHuge}, list({}), stage), HasSubstr("the shape of \"w\" has too many elements")) << stage;
    EXPECT_THAT(refusal({-1}, list({}), stage), HasSubstr("0 or more")) << stage;
  }
  const std::string shared = kept(numbers(std::vector<i64>(3000, 1)), 0);
  const Zero zero;
  zero.write(zero.model({text(kShapes), zero.shapes({text("w"), torch_size({1})})}),
             shared + zero.optimizer({text("param_alignment_paddings"), list({repeated(get(0), 3000)})}));
  EXPECT_THAT(zero.refusal(), testing::AnyOf(HasSubstr(kTooMuch), HasSubstr(kTooOften)));
}

TEST(HostileZeroCheckpoint, SharedListsAreNotVisitedWithoutEnd) {
  const auto refusal = [](const std::string& model, const std::string& optimizer) {
    const Zero zero;
    zero.write(model, optimizer);
    return zero.refusal();
  };
  const Zero z;
  const std::string one = kept(tensor(), 0);
  const auto usual = z.model({text(kShapes), z.shapes({text("w"), torch_size({1})})});
  // One shard is listed a thousand times, so that the list has more elements than the file.
  for (const int stage : {1, 3})
    EXPECT_THAT(refusal(usual, one + z.optimizer({}, list({repeated(get(0), 1000)}), stage)), HasSubstr("have more elements than fit"));
  // One dictionary of shapes is listed as thousands of parameter groups, which takes too much memory or too many steps.
  const std::string shapes = kept(dict({repeated(text("w") + torch_size({1}), 1000)}), 0);
  EXPECT_THAT(refusal(shapes + z.model({text(kShapes), list({repeated(get(0), 5000)})}), z.optimizer({})),
              testing::AnyOf(HasSubstr(kTooMuch), HasSubstr(kTooOften)));
  // The optimizer state lists thousands of arrays for thousands of parameters, which would take too much memory.
  const auto arrays =
      dict({text("state"), dict({number(0), dict(many(3000, [](size_t i) { return text("a" + std::to_string(i)) + get(0); }))})});
  const std::string size = kept(torch_size({0}), 1);
  const auto names = many(3000, [](size_t i) { return text(std::to_string(i)) + get(1); });
  EXPECT_THAT(refusal(size + z.model({text(kShapes), list({dict({joined(names), text("w"), torch_size({1})})})}),
                      one + z.optimizer({text("base_optimizer_state"), arrays}, list({get(0)}))),
              HasSubstr(kTooMuch));
  // A checkpoint is accepted in which one weight has thousands of pieces and thousands of names.
  const auto parts = list({repeated(kept(tensor({.sizes = {0}, .strides = {1}}), 2) + get(2), 1), repeated(get(2), 3000), get(0)});
  const auto second = many(3000, [](size_t i) { return text(std::to_string(i)) + text("w"); });
  const Zero fine;
  fine.write(fine.model({text(kShapes), fine.shapes({text("w"), torch_size({1})}), text("shared_params"), dict({joined(second)})}),
             one + fine.optimizer({}, parts, 3));
  EXPECT_EQ(ZeroCheckpoint(fine.at.path()).tensors().size(), 3001u);
}

// Spillway does not support tensors of 16-bit integers. A frozen one is listed as such and not read as 16-bit floating-point numbers.
TEST(HostileZeroCheckpoint, AFrozenTensorOfAForeignTypeIsForeign) {
  const Zero zero;
  const std::string frozen = tensor({.type = "ShortStorage", .sizes = {2}});
  const auto model = [&](const std::string& values) {
    return zero.model({text(kShapes), zero.shapes({text("w"), torch_size({1})}), text("frozen_param_shapes"),
                       dict({text("f"), torch_size({2})}), text("frozen_param_fragments"), dict({text("f"), values})});
  };
  zero.write(model(frozen), zero.optimizer({}));
  const ZeroCheckpoint checkpoint(zero.at.path());
  ASSERT_TRUE(checkpoint.find("f"));
  EXPECT_EQ(checkpoint.find("f")->foreign, "I16 [2]");
  double value = 0;
  EXPECT_THAT(error_of(ErrorCode::data, [&] { checkpoint.read_wide(*checkpoint.find("f"), 0, std::span(&value, 1)); }),
              HasSubstr("tensor \"f\": expected floating-point numbers"));
  // All ranks must give a frozen tensor the same type.
  const auto of_rank = [](int rank, const char* what) {
    return "zero_pp_rank_" + std::to_string(rank) + "_mp_rank_00_" + what + "_states.pt";
  };
  const Zero ranks;
  for (const int rank : {0, 1}) {
    put(ranks.at / of_rank(rank, "model"), torch_file(model(rank == 0 ? tensor() : frozen)));
    put(ranks.at / of_rank(rank, "optim"), torch_file(ranks.optimizer({}, list({tensor()}), 3)));
  }
  EXPECT_THAT(ranks.refusal(), AllOf(HasSubstr("zero_pp_rank_1"), HasSubstr("the frozen parameter \"f\" has another type")));
}

TEST(HostileZeroCheckpoint, ReferencesInCirclesAreRefused) {
  const Zero zero;
  const std::string circle =
      kept("}" + put(0) + text("module") + get(0) + "s" + text(kShapes) + get(0) + "s" + text("frozen_param_shapes") + get(0) + "s" +
               text("frozen_param_fragments") + get(0) + "s" + text("optimizer_state_dict") + get(0) + "s" + text("zero_stage") +
               number(1) + "s" + text("single_partition_of_fp32_groups") + get(0) + "s",
           1);
  zero.write(circle + get(1), zero.optimizer({}));
  EXPECT_NE(zero.refusal(), "");
  zero.write(zero.model({text(kShapes), zero.shapes({text("w"), torch_size({1})})}), circle + get(1));
  EXPECT_THAT(zero.refusal(), HasSubstr("fp32 weights"));
}

// Opening a weight folder never blocks, even if a named pipe or another special file is in the place of a weight file or its index.
TEST(HostileWeightFolder, NoPipeIsWaitedFor) {
  for (const char* name : {"model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json"}) {
    for (const bool is_pipe : {true, false}) {
      const TemporaryFolder folder;
      if (is_pipe) {
        ASSERT_EQ(::mkfifo((folder / name).c_str(), 0600), 0);
      } else {
        fs::create_symlink("/dev/zero", folder / name);
      }
      EXPECT_THAT(error_of(ErrorCode::data, [&] { WeightFolder weights(folder.path()); }),
                  HasSubstr("expected a regular file, got a device or pipe"));
      EXPECT_FALSE(is_torch_file(folder / name));
    }
  }
  for (const char* name : {"latest", "latest_universal", ".metadata"}) {
    const TemporaryFolder folder;
    ASSERT_EQ(::mkfifo((folder / name).c_str(), 0600), 0);
    EXPECT_FALSE(has_weights(folder.path())) << name;
  }
  const Zero zero;
  ASSERT_EQ(::mkfifo((zero.at / "mp_rank_00_model_states.pt").c_str(), 0600), 0);
  put(zero.at / "zero_pp_rank_0_mp_rank_00_optim_states.pt", "");
  EXPECT_THAT(zero.refusal(), HasSubstr("expected a regular file, got a device or pipe"));
}

// A huge file "latest", which names the newest step's folder, is read only as far as the name of a folder can go.
TEST(HostileZeroCheckpoint, TheFileThatNamesTheLastIsNotReadWhole) {
  const TemporaryFolder folder;
  put(folder / "latest", "");
  fs::resize_file(folder / "latest", std::uintmax_t{1} << 40);  // makes a sparse file of 1 TiB of zeros, which contains no white space
  EXPECT_FALSE(is_zero_checkpoint(folder.path()));
  EXPECT_THAT(error_of(ErrorCode::data, [&] { ZeroCheckpoint checkpoint(folder.path()); }), HasSubstr("latest"));
}

}  // namespace
}  // namespace spillway::data::hostile_weights_test
