// Tests the results of a group of healthy ranks: every collective against its definition, point-to-point messages, and split groups.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <thread>

#include "tests/parallel/comm/support_communicator.h"

namespace spillway::parallel::test {
namespace {

using Bytes = std::vector<std::byte>;

constexpr i64 kElems[] = {0, 1, 5, 1003, 70'001};  // an array of the last size is moved in several pieces

std::span<std::byte> part(Bytes& all, const Parts& bytes, int r) {
  return std::span(all).subspan(static_cast<size_t>(bytes[static_cast<size_t>(r)]),
                                static_cast<size_t>(bytes[static_cast<size_t>(r) + 1] - bytes[static_cast<size_t>(r)]));
}
Bytes copy_of(std::span<const std::byte> bytes) { return {bytes.begin(), bytes.end()}; }
Parts in_bytes(Parts elems, DType dtype) {
  for (i64& limit : elems) limit *= size_of(dtype);
  return elems;
}
bool same(std::span<const std::byte> a, std::span<const std::byte> b) { return std::equal(a.begin(), a.end(), b.begin(), b.end()); }

TEST_P(CommunicatorOf, AllGather) {
  GetParam().run([](auto& end) {
    for (const i64 bytes : kElems) {
      const Parts parts = uneven_parts(end->size(), bytes);
      Bytes expected = numbers(DType::f64, ceil_div(bytes, 8), 7, 1);
      expected.resize(static_cast<size_t>(bytes));
      for (const bool in_place : {false, true}) {
        Bytes all(static_cast<size_t>(bytes), std::byte{0xee});
        const Bytes mine = copy_of(part(expected, parts, end->rank()));
        const std::span<std::byte> place = part(all, parts, end->rank());
        if (in_place) std::copy(mine.begin(), mine.end(), place.begin());
        end->all_gather(in_place ? std::span<const std::byte>(place) : std::span<const std::byte>(mine), all, parts).wait();
        EXPECT_TRUE(same(all, expected)) << bytes << " bytes, in place " << in_place;
      }
    }
  });
}

TEST_P(CommunicatorOf, ReduceScatter) {
  GetParam().run([](auto& end) {
    for (const DType dtype : {DType::f32, DType::f64}) {
      for (const i64 elems : kElems) {
        const Parts parts = uneven_parts(end->size(), elems), bytes = in_bytes(parts, dtype);
        Bytes sum = reduced_numbers(dtype, Reduction::sum, elems, end->size(), 2);
        const std::span<std::byte> expected = part(sum, bytes, end->rank());
        for (const bool in_place : {false, true}) {
          Bytes all = numbers(dtype, elems, end->rank(), 2), apart(expected.size(), std::byte{0xee});
          const std::span<std::byte> mine = in_place ? part(all, bytes, end->rank()) : std::span(apart);
          end->reduce_scatter(all, mine, dtype, parts).wait();
          EXPECT_TRUE(same(mine, expected)) << elems << " of " << to_string(dtype) << ", in place " << in_place;
        }
      }
    }
  });
}

TEST_P(CommunicatorOf, AllReduce) {
  GetParam().run([](auto& end) {
    for (const DType dtype : {DType::f32, DType::f64, DType::int64}) {
      for (const Reduction reduction : {Reduction::sum, Reduction::max}) {
        for (const i64 elems : kElems) {
          Bytes values = numbers(dtype, elems, end->rank(), 3);
          end->all_reduce(values, dtype, reduction).wait();
          EXPECT_TRUE(same(values, reduced_numbers(dtype, reduction, elems, end->size(), 3)))
              << elems << " of " << to_string(dtype) << ", " << (reduction == Reduction::max ? "max" : "sum");
        }
      }
    }
  });
}

// Shows that a maximum is NaN on every rank if any rank has a NaN.
TEST_P(CommunicatorOf, MaximumKeepsNaN) {
  GetParam().run([](auto& end) {
    for (int where = 0; where < end->size(); ++where) {
      double value = end->rank() == where ? std::numeric_limits<double>::quiet_NaN() : end->rank();
      end->all_reduce(std::as_writable_bytes(std::span(&value, 1)), DType::f64, Reduction::max).wait();
      EXPECT_TRUE(std::isnan(value)) << "NaN on rank " << where;
    }
  });
}

TEST_P(CommunicatorOf, Broadcast) {
  GetParam().run([](auto& end) {
    for (const int root : {0, end->size() - 1}) {
      for (const i64 elems : kElems) {
        Bytes values = numbers(DType::f64, elems, end->rank(), 5);
        end->broadcast(values, root).wait();
        EXPECT_TRUE(same(values, numbers(DType::f64, elems, root, 5))) << elems << " from " << root;
      }
    }
  });
}

// Shows that no rank passes the barrier before the last one has arrived.
TEST_P(CommunicatorOf, BarrierWaitsForAll) {
  GetParam().run([](auto& end) {
    std::byte token{};
    if (end->rank() == 0) {
      for (int r = 1; r < end->size(); ++r) end->receive({&token, 1}, r, 1).wait();
      return end->barrier().wait();
    }
    const Event barrier = end->barrier();
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT_FALSE(barrier.ready());
    end->send({&token, 1}, 0, 1).wait();
    barrier.wait();
  });
}

TEST_P(CommunicatorOf, ManyOperationsInFlight) {
  GetParam().run([](auto& end) {
    constexpr int kOperations = 120;
    std::vector<Bytes> values, expected;
    std::vector<Event> events;
    for (int k = 0; k < kOperations; ++k) {
      const auto seed = static_cast<u64>(k);
      const i64 elems = k % 10 == 0 ? 30'011 : k * 13;
      values.push_back(numbers(DType::f32, elems, end->rank(), seed));
      expected.push_back(k % 2 ? numbers(DType::f32, elems, k % end->size(), seed)
                               : reduced_numbers(DType::f32, Reduction::sum, elems, end->size(), seed));
    }
    for (int k = 0; k < kOperations; ++k) {
      Bytes& mine = values[static_cast<size_t>(k)];
      events.push_back(k % 2 ? end->broadcast(mine, k % end->size()) : end->all_reduce(mine, DType::f32, Reduction::sum));
    }
    for (size_t k = 0; k < events.size(); ++k) {
      events[k].wait();
      EXPECT_TRUE(same(values[k], expected[k])) << "operation " << k;
    }
  });
}

// Sends messages around a ring (with one rank, to itself). They are received by tag in another order
// than they were sent; messages with the same tag must arrive in the order they were sent.
TEST_P(CommunicatorOf, MessagesByTagAndInOrder) {
  GetParam().run([](auto& end) {
    const int to = (end->rank() + 1) % end->size(), from = (end->rank() + end->size() - 1) % end->size();
    const std::vector<int> tags = {5, -3, 5, 1 << 30, 5, 0};
    const i64 sizes[] = {100, 20'000, 0, 3, 70'001, 9};
    std::vector<Bytes> out, in;
    for (size_t k = 0; k < tags.size(); ++k) {
      out.push_back(numbers(DType::f64, sizes[k], end->rank(), k));
      in.emplace_back(static_cast<size_t>(sizes[k]) * 8);
    }
    std::vector<Event> events;
    for (size_t k = 0; k < tags.size(); ++k) events.push_back(end->send(out[k], to, tags[k]));
    for (const size_t k : {5, 3, 0, 1, 2, 4}) events.push_back(end->receive(in[k], from, tags[k]));
    for (const Event& event : events) event.wait();
    for (size_t k = 0; k < tags.size(); ++k) EXPECT_TRUE(same(in[k], numbers(DType::f64, sizes[k], from, k))) << "message " << k;
  });
}

// Shows that messages do not wait behind collectives: rank 0 joins a collective of the
// others only after it has received messages that they sent later.
TEST_P(CommunicatorOf, MessagesPassWhileCollectivesWait) {
  GetParam().run([](auto& end) {
    constexpr i64 kNumbers = 100'000;
    Bytes values = numbers(DType::f32, kNumbers, end->rank(), 8), message = numbers(DType::f32, kNumbers, end->rank(), 9);
    Event reduced;
    if (end->rank() != 0) {
      reduced = end->all_reduce(values, DType::f32, Reduction::sum);
      end->send(message, 0, 4).wait();
    } else {
      for (int r = end->size() - 1; r > 0; --r) {
        end->receive(message, r, 4).wait();
        EXPECT_TRUE(same(message, numbers(DType::f32, kNumbers, r, 9))) << "from " << r;
      }
      reduced = end->all_reduce(values, DType::f32, Reduction::sum);
    }
    reduced.wait();
    EXPECT_TRUE(same(values, reduced_numbers(DType::f32, Reduction::sum, kNumbers, end->size(), 8)));
  });
}

// Checks that the members of `group` have these ranks in the whole group, with an all-gather of every member's rank.
void check_members(Communicator& group, const std::vector<int>& members, int my_rank) {
  ASSERT_EQ(group.size(), std::ssize(members));
  ASSERT_EQ(members[static_cast<size_t>(group.rank())], my_rank);
  std::vector<i64> all(members.size());
  all[static_cast<size_t>(group.rank())] = my_rank;
  Parts parts;
  for (size_t k = 0; k <= members.size(); ++k) parts.push_back(static_cast<i64>(k) * 8);
  const auto bytes = std::as_writable_bytes(std::span(all));
  group.all_gather(bytes.subspan(static_cast<size_t>(group.rank()) * 8, 8), bytes, parts).wait();
  EXPECT_EQ(all, std::vector<i64>(members.begin(), members.end()));
}

std::vector<int> those(int ranks, const std::function<bool(int)>& belongs) {
  std::vector<int> members;
  for (int r = 0; r < ranks; ++r) {
    if (belongs(r)) members.push_back(r);
  }
  return members;
}

// Forms a mesh three ranks wide. Its rows and columns, which are groups of ranks, compute at the same time as the whole group, and rows
// are split once more.
TEST_P(CommunicatorOf, GroupsOfAMeshRunAtTheSameTime) {
  GetParam().run([](auto& end) {
    const int me = end->rank(), size = end->size();
    const auto row = end->split(me / 3), column = end->split(-(me % 3));
    const auto half = row->split(row->rank() % 2);
    check_members(*row, those(size, [&](int r) { return r / 3 == me / 3; }), me);
    check_members(*column, those(size, [&](int r) { return r % 3 == me % 3; }), me);
    check_members(*half, those(size, [&](int r) { return r / 3 == me / 3 && r % 3 % 2 == me % 3 % 2; }), me);
    constexpr i64 kNumbers = 40'000;
    const std::vector<Communicator*> groups = {half.get(), end.get(), column.get(), row.get()};
    std::vector<Bytes> values;
    for (size_t k = 0; k < groups.size(); ++k) values.push_back(numbers(DType::f32, kNumbers, groups[k]->rank(), k));
    std::vector<size_t> order = {0, 1, 2, 3};
    // ranks use their groups in different orders, since no group may wait for another
    if (me % 2) std::reverse(order.begin(), order.end());
    std::vector<Event> events(groups.size());
    for (const size_t k : order) events[k] = groups[k]->all_reduce(values[k], DType::f32, Reduction::sum);
    for (size_t k = 0; k < groups.size(); ++k) {
      events[k].wait();
      EXPECT_TRUE(same(values[k], reduced_numbers(DType::f32, Reduction::sum, kNumbers, groups[k]->size(), k))) << "group " << k;
    }
  });
}

// Shows that a rank may leave when its own work is done. Communication among the others must not be harmed.
TEST_P(CommunicatorOf, LeavingInPeaceHurtsNobody) {
  if (GetParam().ranks < 3) return;
  GetParam().run([](auto& end) {
    end->barrier().wait();
    if (end->rank() == 0) return end.reset();
    if (end->rank() > 2) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    Bytes message = numbers(DType::f32, 50'000, end->rank(), 1);
    end->rank() == 1 ? end->send(message, 2, 0).wait() : end->receive(message, 1, 0).wait();
    EXPECT_TRUE(same(message, numbers(DType::f32, 50'000, 1, 1)));
  });
}

// Moves more than 2^31 bytes in one call and checks every byte.
TEST_P(SoakCommunicatorOf, MoreThanAnIntCounts) {
  GetParam().run([](auto& end) {
    const i64 bytes = (i64{1} << 31) + 4104;
    const auto byte = [](i64 i) { return static_cast<std::byte>((i * 2654435761) >> 13); };
    const Parts parts = {0, bytes / 2 - 11, bytes};
    Bytes all(static_cast<size_t>(bytes));
    for (i64 i = parts[static_cast<size_t>(end->rank())]; i < parts[static_cast<size_t>(end->rank()) + 1]; ++i)
      all[static_cast<size_t>(i)] = byte(i);
    end->all_gather(part(all, parts, end->rank()), all, parts).wait();
    for (i64 i = 0; i < bytes; ++i) ASSERT_EQ(all[static_cast<size_t>(i)], byte(i)) << i;
    if (end->rank() == 1) std::fill(all.begin(), all.end(), std::byte{});
    end->broadcast(all, 0).wait();
    for (i64 i = 0; i < bytes; ++i) ASSERT_EQ(all[static_cast<size_t>(i)], byte(i)) << i;
    if (end->rank() == 0) std::fill(all.begin(), all.end(), std::byte{});
    end->rank() == 1 ? end->send(all, 0, 3).wait() : end->receive(all, 1, 3).wait();
    for (i64 i = 0; i < bytes; ++i) ASSERT_EQ(all[static_cast<size_t>(i)], byte(i)) << i;
  });
}

TEST_P(SoakCommunicatorOf, SumOfMoreBytesThanAnIntCounts) {
  GetParam().run([](auto& end) {
    const i64 elems = (i64{1} << 29) + 1027;
    std::vector<float> values(static_cast<size_t>(elems));
    for (i64 i = 0; i < elems; ++i) values[static_cast<size_t>(i)] = static_cast<float>((i + end->rank()) % 4093);
    end->all_reduce(std::as_writable_bytes(std::span(values)), DType::f32, Reduction::sum).wait();
    for (i64 i = 0; i < elems; ++i)
      ASSERT_EQ(values[static_cast<size_t>(i)], static_cast<float>(i % 4093) + static_cast<float>((i + 1) % 4093)) << i;
  });
}

}  // namespace
}  // namespace spillway::parallel::test
