// SPDX-License-Identifier: Apache-2.0
#include "support/engine_ranks.h"
#include "xylem/execution/message_pool.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace xylem::execution {
namespace {

std::vector<Message*> messages_of(const Execution& execution) {
  std::vector<Message*> found;
  for (Message* at = execution.messages; at != nullptr; at = at->next) found.push_back(at);
  return found;
}

class MessagePoolTest : public testing::Test {
 protected:
  MessagePool pool;
  TestExecution execution;
  Link link{.endpoint = 7};
};

TEST_F(MessagePoolTest, AMessageIsAsNewWhenItIsAcquiredAgain) {
  Message& used = pool.acquire(execution, {});
  used.code = Code::peer_lost;
  used.bytes = used.step = used.slice = 5;
  used.view = {.data = used.view.data, .id = 3, .bytes = 1, .may_change = true};
  used.state = &used;
  used.incoming = used.in_place = true;
  used.completed_next = &used;
  pool.release(used);
  const Message& message = pool.acquire(execution, link);
  ASSERT_EQ(&message, &used);
  EXPECT_EQ(message.code, Code::ok);
  EXPECT_EQ(message.bytes + message.step + message.slice, 0U);
  EXPECT_EQ(message.view.id + message.view.bytes, 0U);
  EXPECT_FALSE(message.view.may_change || message.incoming || message.in_place);
  EXPECT_TRUE(message.state == nullptr && message.completed_next == nullptr);
  EXPECT_EQ(message.owner, &execution);
  EXPECT_EQ(message.endpoint, link.endpoint);
}

TEST_F(MessagePoolTest, AnExecutionListsItsMessages) {
  std::vector<Message*> made;
  for (int i = 0; i < 3; ++i) made.push_back(&pool.acquire(execution, link));
  TestExecution other;
  pool.acquire(other, link);
  EXPECT_EQ(messages_of(execution), (std::vector{made[2], made[1], made[0]}));
  pool.release(*made[1]);
  EXPECT_EQ(messages_of(execution), (std::vector{made[2], made[0]}));
  pool.release(*made[2]);
  EXPECT_EQ(messages_of(execution), (std::vector{made[0]}));
  EXPECT_EQ(execution.outstanding, 1U);
  pool.release(*made[0]);
  EXPECT_EQ(execution.outstanding, 0U);
  EXPECT_EQ(messages_of(other).size(), 1U);
}

TEST_F(MessagePoolTest, MessagesInUseAreDistinctHoweverManyThereAre) {
  std::set<Message*> made;
  for (int i = 0; i < 1000; ++i) made.insert(&pool.acquire(execution, link));
  EXPECT_EQ(made.size(), 1000U);
  for (Message* message : made) pool.release(*message);
  for (int i = 0; i < 1000; ++i) EXPECT_TRUE(made.contains(&pool.acquire(execution, link)));
}

TEST_F(MessagePoolTest, CompletedMessagesAreReturnedOldestFirst) {
  Message& a = pool.acquire(execution, link);
  Message& b = pool.acquire(execution, link);
  Message& c = pool.acquire(execution, link);
  EXPECT_FALSE(pool.has_completed());
  b.done(b);
  a.done(a);
  EXPECT_EQ(pool.next_completed(), &b);
  pool.release(b);
  MessagePool::on_done(c);  // While other messages are being handled.
  EXPECT_EQ(pool.next_completed(), &a);
  EXPECT_EQ(pool.next_completed(), &c);
  EXPECT_EQ(pool.next_completed(), nullptr);
  EXPECT_FALSE(pool.has_completed());
}

}  // namespace
}  // namespace xylem::execution
