// Tests the parsing of pickles: what Python writes, random trees with their values, and errors with their position. Pickles that
// no program writes, whose values contain themselves or repeat endlessly, must cost time and memory in proportion to their bytes.
#include "data/torch/pickle.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <numeric>

#include "tests/data/support_files.h"
#include "tests/data/weights/support_pickles.h"
#include "tests/support/fixtures.h"

namespace spillway::data::pickle_test {
namespace {

using namespace spillway::test;
using namespace spillway::test::pickles;
using testing::HasSubstr;
using Kind = PickleNode::Kind;

Pickle pickle_of(const std::string& bytes) {
  const auto raw = std::as_bytes(std::span(bytes));
  return {{raw.begin(), raw.end()}, "x"};
}

TEST(Pickle, ReadsWhatPythonWrites) {
  // The first bytes are pickle.dumps({"a": [1, -2, 300, 70000, 2**40, 1.5, None, True, (b"x", "y")]}, 4). The bytes after them are a list
  // [x, x] that holds one object twice, in protocol 2.
  using namespace std::string_literals;
  const Pickle p = pickle_of(
      "\x80\x04\x95\x37\0\0\0\0\0\0\0}\x94\x8c\x01"
      "a\x94]\x94(K\x01J\xfe\xff\xff\xffM,\x01Jp\x11\x01\0\x8a\x06\0\0\0\0\0\x01G?\xf8\0\0\0\0\0\0N\x88"
      "C\x01x\x94\x8c\x01y\x94\x86\x94"
      "es."s);
  const PickleNode& root = p.at(p.root());
  ASSERT_EQ(root.kind, Kind::dict);
  EXPECT_EQ(p.text(p.at(p.items(root)[0])), "a");
  const auto items = p.items(p.at(p.items(root)[1]));
  ASSERT_EQ(items.size(), 9u);
  const i64 integers[] = {1, -2, 300, 70000, i64{1} << 40};
  for (size_t i = 0; i < 5; ++i) EXPECT_EQ(p.at(items[i]).integer(), integers[i]);
  EXPECT_EQ(p.at(items[5]).real(), 1.5);
  EXPECT_EQ(p.at(items[6]).kind, Kind::none);
  EXPECT_EQ(p.at(items[7]).kind, Kind::boolean);
  EXPECT_EQ(p.at(p.items(p.at(items[8]))[1]).count, 1u);
  EXPECT_EQ(p.text(p.at(p.items(p.at(items[8]))[1])), "y");
  const Pickle shared = pickle_of(
      "\x80\x02]q\0(]q\x01h\x01"
      "e."s);
  EXPECT_EQ(shared.items(shared.at(shared.root()))[0], shared.items(shared.at(shared.root()))[1]);
}

// Python writes long lists a thousand elements at a time, and fills the result of a call after the call.
TEST(Pickle, ContainersGrowPieceByPiece) {
  constexpr i64 kCount = 3000;
  const auto filled = [&](std::string container, const std::string& each, const std::string& end) {
    for (i64 i = 0; i < kCount; i += 7) {
      container += "(";
      for (i64 k = i; k < std::min(i + 7, kCount); ++k) container += each + number(k);
      container += end;
    }
    return container;
  };
  const std::string ordered =
      filled(call(global("collections", "OrderedDict"), {}), none, "u") + object("", {text("a"), number(4)}).substr(2);
  const Pickle p = pickle_of(pickle(tuple({filled("]", "", "e"), filled("}", none, "u"), ordered})));
  const auto roots = p.items(p.at(p.root()));
  ASSERT_EQ(roots.size(), 3u);
  const auto list = p.items(p.at(roots[0])), dict = p.items(p.at(roots[1])), entries = p.entries(p.at(roots[2]));
  ASSERT_EQ(list.size(), static_cast<size_t>(kCount));
  ASSERT_EQ(dict.size(), static_cast<size_t>(2 * kCount));
  ASSERT_EQ(entries.size(), static_cast<size_t>(2 * kCount));
  for (i64 i = 0; i < kCount; ++i) {
    const auto at = static_cast<size_t>(i);
    ASSERT_EQ(p.at(list[at]).integer(), i);
    ASSERT_EQ(p.at(dict[2 * at + 1]).integer(), i);
    ASSERT_EQ(p.at(entries[2 * at + 1]).integer(), i);
  }
  EXPECT_EQ(p.items(p.at(roots[2])).size(), 2u);
  const PickleNode* state = p.state(p.at(roots[2]));
  ASSERT_TRUE(state);
  EXPECT_EQ(p.at(p.items(*state)[1]).integer(), 4);
}

// Holds a random value as the bytes of its pickle, and as the text that reading must show, such as "[1,2,(x)]".
struct Written {
  std::string bytes, shown;
};
Written random_value(Random& random, int depth) {
  const u64 kind = random(depth > 0 ? 9 : 4);
  if (kind == 0) return {none, "none"};
  if (kind == 1) {
    const i64 value = static_cast<i64>(random(2) ? random(300) : (random(u64{1} << 31) << 31)) - 150;
    return {number(value), std::to_string(value)};
  }
  if (kind == 2 || kind == 3) {
    const std::string chars(random(5), static_cast<char>('a' + random(26)));
    return {text(chars), "'" + chars + "'"};
  }
  std::vector<std::string> bytes, shown;
  for (u64 count = random(6); count > 0; --count) {
    for (int of_pair = 0; of_pair < (kind == 6 || kind == 7 ? 2 : 1); ++of_pair) {
      const Written one = random_value(random, depth - 1);
      bytes.push_back(one.bytes);
      shown.push_back(one.shown + ",");
    }
  }
  if (kind == 4) return {tuple(bytes), "(" + joined(shown) + ")"};
  if (kind == 5) return {list(bytes), "[" + joined(shown) + "]"};
  if (kind == 6) return {dict(bytes), "{" + joined(shown) + "}"};
  if (kind == 7) return {object(global("a", "b"), bytes), "a.b{" + joined(shown) + "}"};
  return {call(global("a", "b"), bytes) + "]" + "R", "a.b(" + joined(shown) + ")[]"};
}
std::string shown(const Pickle& p, const PickleNode& node) {
  const auto all = [&] {
    std::string text;
    for (const PickleRef ref : p.items(node)) text += shown(p, p.at(ref)) + ",";
    return text;
  };
  switch (node.kind) {
    case Kind::integer:
      return std::to_string(node.integer());
    case Kind::text:
      return "'" + std::string(p.text(node)) + "'";
    case Kind::global:
      return std::string(p.text(node));
    case Kind::tuple:
      return "(" + all() + ")";
    case Kind::list:
      return "[" + all() + "]";
    case Kind::dict:
      return "{" + all() + "}";
    case Kind::object: {
      const auto items = p.items(node);
      return shown(p, p.at(items[0])) + (p.state(node) ? shown(p, *p.state(node)) : shown(p, p.at(items[1])));
    }
    default:
      return "none";
  }
}
TEST(Pickle, ARandomTreeIsReadToTheValue) {
  Random random{11};
  size_t longest = 0;
  for (int i = 0; i < 500; ++i) {
    const Written value = random_value(random, 6);
    const Pickle p = pickle_of(pickle(value.bytes));
    ASSERT_EQ(shown(p, p.at(p.root())), value.shown);
    longest = std::max(longest, value.shown.size());
  }
  EXPECT_GT(longest, 1000u);
}

TEST(Pickle, WhatIsWrongIsSaidWithItsPlace) {
  using namespace std::string_literals;
  const auto refused = [](const std::string& bytes, const char* why) {
    EXPECT_THAT(error_of(ErrorCode::data, [&] { pickle_of(bytes); }), HasSubstr(why)) << testing::PrintToString(bytes);
  };
  refused("", "expected 1 more bytes");
  refused("\x80\x02", "expected 1 more bytes, got 0");
  refused("\x80\x00."s, "expected protocol 2 to 5, got 0");
  refused("I1\n.", "0x49");
  refused("\x80\x02X\xff\xff\xff\x7f"s, "expected 2147483647 more bytes, got 0, at byte 2");
  refused("\x80\x02\x8d\xff\xff\xff\xff\xff\xff\xff\xff"s, "more bytes");
  refused("\x80\x02."s, "one value at the end");
  refused("\x80\x02NN."s, "one value at the end");
  refused("\x80\x02h\x05."s, "entry 5");
  refused("\x80\x02Nr\xff\xff\xff\xff."s, "got number 4294967295");
  refused("\x80\x02s."s, "empty");
  refused("\x80\x02te."s, "expected a mark");
  refused("\x80\x02N(NNe."s, "expected a container");
  refused("\x80\x02}(Nu."s, "expected a value for each key");
  refused("\x80\x02}]s."s, "empty");
}

TEST(Pickle, WhatContainsItselfIsReadAsSuch) {
  const Pickle in_list = pickle_of(pickle("]" + put(0) + get(0) + "a"));
  EXPECT_EQ(in_list.items(in_list.at(in_list.root()))[0], in_list.root());
  const Pickle in_dict = pickle_of(pickle("}" + put(0) + text("a") + get(0) + "s"));
  EXPECT_EQ(in_dict.items(in_dict.at(in_dict.root()))[1], in_dict.root());
  const Pickle in_object = pickle_of(pickle(global("a", "b") + ")R" + put(0) + get(0) + "b" + get(0) + get(0) + "s"));
  const PickleNode& object = in_object.at(in_object.root());
  EXPECT_EQ(in_object.state(object), &object);
  EXPECT_EQ(in_object.entries(object)[0], in_object.root());
}

// Memory is bounded in proportion to a pickle's bytes: each instruction may make one value and one place on the stack or in a container.
TEST(Pickle, WhatItHoldsIsBoundedByItsBytes) {
  constexpr size_t kMany = size_t{1} << 18;
  const auto most = [](size_t bytes) { return ReadBudget::kHeldOfAny + ReadBudget::kHeldPerByte * bytes; };
  for (const std::string& bytes : {pickle(none + repeated("\x94", kMany)), pickle("(" + repeated("2", kMany) + "l"),
                                   pickle(repeated("]", kMany) + repeated("a", kMany - 1)), pickle(repeated("N0", kMany) + none),
                                   pickle("]" + put(0) + repeated(get(0) + "a", kMany)),
                                   pickle(repeated("\x85", 10) + repeated(")\x85", 10)), pickle(")" + repeated("\x85", kMany))}) {
    try {
      const Pickle p = pickle_of(bytes);
      EXPECT_LE(p.budget().held(), most(bytes.size()));
      EXPECT_LE(p.node_count(), bytes.size());
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::data) << error.what();
    }
  }
  // Reading does not recurse, so 2^18 nested lists can be read.
  const Pickle deep = pickle_of(pickle(repeated("]", kMany) + repeated("a", kMany - 1)));
  EXPECT_EQ(deep.node_count(), kMany);
  EXPECT_EQ(pickle_of(pickle(none + repeated("\x94", kMany))).node_count(), 1u);
  const auto refused = [](const std::string& bytes) {
    EXPECT_THAT(error_of(ErrorCode::data, [&] { pickle_of(bytes); }), HasSubstr("takes more memory than"));
  };
  refused(pickle(repeated("N", 8 * kMany)));
  // A global (module and name) consists of two texts of a megabyte. Each repetition of it takes only a few bytes in the pickle.
  refused(pickle(kept(text(std::string(1'000'000, 'a')), 0) + repeated(get(0) + get(0) + "\x93" + "0", 100) + none));
}

TEST(ReadBudget, GrowsWithWhatIsReadAndNamesIt) {
  ReadBudget budget("[torch] x.bin", 1000);
  budget.spend(ReadBudget::kStepsOfAny + 1000 * ReadBudget::kStepsPerByte);
  EXPECT_THAT(error_of(ErrorCode::data, [&] { budget.spend(1); }),
              HasSubstr("[torch] x.bin: reading the file visits its values more often than the file's 1000 bytes justify"));
  budget.add_input(1);
  budget.spend(ReadBudget::kStepsPerByte);
  EXPECT_EQ(budget.steps(), ReadBudget::kStepsOfAny + 1001 * ReadBudget::kStepsPerByte);
  budget.hold(ReadBudget::kHeldOfAny + 1001 * ReadBudget::kHeldPerByte);
  EXPECT_THAT(error_of(ErrorCode::data, [&] { budget.hold(1); }), HasSubstr("takes more memory"));
  budget.add_input(~u64{0});
  budget.add_input(~u64{0});
  budget.hold(ReadBudget::kMostHeld - budget.held());
  EXPECT_THAT(error_of(ErrorCode::data, [&] { budget.hold(1); }), HasSubstr("takes more memory"));
}

// Parses pickles of randomly changed instructions. Each is read or refused with Error(data), within its budget.
void survive_instructions(u64 seed, int count) {
  Random random{seed};
  const std::string seedling = pickle(
      dict({text("a"), list({number(1), tuple({text("b"), none})}) + put(1), text("c"), object(global("m", "n"), {text("d"), get(1)}),
            text("e"), call(global("m", "o"), {number(300)}) + put(2) + text("k") + get(2) + "s" + "]" + get(1) + "a" + "b"}));
  const std::vector<std::string> all = instructions(seedling);
  ASSERT_EQ(joined(all), seedling);
  int refused = 0;
  for (int i = 0; i < count; ++i) {
    const std::string bytes = mutated(all, random);
    try {
      const Pickle p = pickle_of(bytes);
      ASSERT_LE(p.budget().held(), ReadBudget::kHeldOfAny + ReadBudget::kHeldPerByte * bytes.size());
      for (PickleRef ref = 0; ref < p.node_count(); ++ref) {
        const PickleNode& node = p.at(ref);
        for (const auto refs : {p.items(node), p.entries(node)}) {
          for (const PickleRef item : refs) ASSERT_LT(item, p.node_count());
        }
        ASSERT_LE(p.text(node).size(), bytes.size());
      }
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), ErrorCode::data) << error.what();
      ++refused;
    }
  }
  EXPECT_GT(refused, count / 20);
  EXPECT_LT(refused, count);
}
TEST(Pickle, SurvivesAnyInstructions) { survive_instructions(1, 3000); }
TEST(SoakPickle, SurvivesAnyInstructions) { survive_instructions(2, 100'000); }

}  // namespace
}  // namespace spillway::data::pickle_test
