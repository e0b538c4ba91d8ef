# SPDX-License-Identifier: Apache-2.0
"""The figures that bench/compare computes from the measured times of its turns."""

import os
import sys
import unittest

sys.dont_write_bytecode = True  # Leaves no files in the repository.
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "bench"))

from comparison.report import best_peer, interval, ratio


class Interval(unittest.TestCase):
    def test_needs_six_values(self):
        self.assertIsNone(interval([]))
        self.assertIsNone(interval([1, 2, 3, 4, 5]))
        self.assertEqual(interval([6, 1, 5, 2, 4, 3]), (1, 6))

    def test_goes_between_the_order_statistics_of_the_sign_test(self):
        # The k-th smallest and largest values, as the two-sided sign test at 5 % gives them.
        for count, lower in {8: 1, 9: 2, 15: 4, 20: 6, 25: 8}.items():
            self.assertEqual(interval(list(range(1, count + 1))), (lower, count + 1 - lower))

    def test_ignores_a_few_outliers(self):
        self.assertEqual(interval([1] * 14 + [1000]), (1, 1))


class Ratio(unittest.TestCase):
    def test_is_the_median_within_repetitions_and_not_of_medians(self):
        cell = {"xylem": [1, 20, 3], "a": [2, 10, 3], "b": [4, 40, 4]}
        self.assertEqual(ratio(cell, "a"), 1)
        self.assertEqual(best_peer(cell), "a")

    def test_lacks_where_a_peer_does(self):
        self.assertIsNone(ratio({"xylem": [1]}, "a"))
        self.assertIsNone(ratio({"a": [1]}, "a"))


if __name__ == "__main__":
    unittest.main()
