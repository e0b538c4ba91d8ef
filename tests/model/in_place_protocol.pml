/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages that stay in their sender's buffer until their receiver has read them there (segment.h,
 * IncomingStreams::fetch, OutgoingStreams::withdraw), as a model for spin. The sender announces a
 * message. When the receiver has reported that it has read the message, the sender writes the next
 * message into the same two words. The sender may also withdraw a message. Then the user may write
 * to the two words at any time. Spin tries every interleaving and every delay of a store, as in
 * slot_protocol.pml.
 *
 * In this model, loads happen in order, so the receiver's fence cannot be removed to test it.
 * Instead, LOOK_BEFORE_READING makes the two loads in the wrong order.
 *
 * Spin checks that every message that the receiver accepts is equal to the message that was sent.
 * Each #ifdef breaks the protocol in one way. tests/model/protocols expects that spin finds an error
 * in each case.
 */
#define MESSAGES 3

/* Shared memory, as every process sees it. */
#define TURN 0      /* messages announced */
#define DATA 1      /* two words */
#define WITHDRAWN 3
#define GRANTED 4   /* messages read */
#define WORDS 5
byte memory[WORDS];

/* Stores that are not visible yet. Plain stores can overtake each other. Release stores cannot. */
chan low_of[2] = [1] of { byte, byte };
chan high_of[2] = [1] of { byte, byte };
chan withdrawn_of[2] = [1] of { byte, byte };
chan released[2] = [4] of { byte, byte };

proctype stores(byte who) {
  byte address, value;
end:
  do
  :: atomic { low_of[who]?address, value -> memory[address] = value }
  :: atomic { high_of[who]?address, value -> memory[address] = value }
  :: atomic { withdrawn_of[who]?address, value -> memory[address] = value }
  :: atomic {
       empty(low_of[who]) && empty(high_of[who]) && empty(withdrawn_of[who]) &&
       nempty(released[who]) ->
       released[who]?address, value;
       memory[address] = value
     }
  od
}

inline fence(who) {
  empty(low_of[who]) && empty(high_of[who]) && empty(withdrawn_of[who]) && empty(released[who])
}

inline write(value) {
  low_of[0]!DATA, (value);
  high_of[0]!(DATA + 1), (value)
}

proctype sender() {
  byte next = 1;
  do
  :: next > MESSAGES -> break
  :: next <= MESSAGES ->
    write(next);
    released[0]!TURN, next;
    if
    :: memory[GRANTED] == next -> next++
    :: true -> /* Withdraws the message: from here on, the user may write. */
      withdrawn_of[0]!WITHDRAWN, 1;
#ifndef NO_FENCE_AFTER_WITHDRAWING
      fence(0);
#endif
      write(99);
      break
    fi
  od
}

inline look() {
  if
  :: memory[WITHDRAWN] == 1 -> break
  :: else
  fi
}

proctype receiver() {
  byte next = 1, low, high;
end:
  do
  :: next > MESSAGES -> break
  :: next <= MESSAGES ->
end_of_one_who_gave_up:
    memory[TURN] == next;
#ifdef GRANT_BEFORE_READING
    released[1]!GRANTED, next;
#endif
#ifdef LOOK_BEFORE_READING
    look();
#endif
    low = memory[DATA];
    high = memory[DATA + 1];
#if !defined(NO_LOOK_AT_WITHDRAWN) && !defined(LOOK_BEFORE_READING)
    look();
#endif
    assert(low == next && high == next);
#ifndef GRANT_BEFORE_READING
    released[1]!GRANTED, next;
#endif
    next++
  od
}

init {
  atomic {
    run stores(0);
    run stores(1);
    run sender();
    run receiver()
  }
}
