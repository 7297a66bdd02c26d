//! Things with names, addressed by a small number while they are of use.

use std::collections::BTreeMap;
use std::ops::{Index, IndexMut};
use std::sync::Arc;

/// Finds an entry by its name once; afterwards by its number, which stays until the entry is forgotten.
#[derive(Clone, Debug)]
pub(super) struct Table<T> {
    by_name: BTreeMap<Arc<str>, usize>,
    entries: Vec<Entry<T>>,
    free: Vec<usize>,
}

#[derive(Clone, Debug)]
struct Entry<T> {
    /// `None` for a number that is free.
    name: Option<Arc<str>>,
    value: T,
}

impl<T: Default> Table<T> {
    pub(super) fn new() -> Self {
        Self { by_name: BTreeMap::new(), entries: Vec::new(), free: Vec::new() }
    }

    pub(super) fn find(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    /// The number of this name, and whether it was not known before.
    pub(super) fn number(&mut self, name: &Arc<str>) -> (usize, bool) {
        if let Some(number) = self.find(name) {
            return (number, false);
        }
        let entry = Entry { name: Some(name.clone()), value: T::default() };
        let number = match self.free.pop() {
            Some(number) => {
                self.entries[number] = entry;
                number
            }
            None => {
                self.entries.push(entry);
                self.entries.len() - 1
            }
        };
        self.by_name.insert(name.clone(), number);
        (number, true)
    }

    pub(super) fn name(&self, number: usize) -> Arc<str> {
        self.entries[number].name.clone().unwrap_or_default()
    }

    pub(super) fn forget(&mut self, number: usize) {
        if let Some(name) = self.entries[number].name.take() {
            self.by_name.remove(&name);
            self.entries[number].value = T::default();
            self.free.push(number);
        }
    }

    /// All that are known, by number.
    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, &T)> {
        self.entries.iter().enumerate().filter(|(_, entry)| entry.name.is_some()).map(|(at, entry)| (at, &entry.value))
    }

    /// The numbers that are in use.
    pub(super) fn numbers(&self) -> Vec<usize> {
        self.iter().map(|(number, _)| number).collect()
    }
}

impl<T> Index<usize> for Table<T> {
    type Output = T;

    fn index(&self, number: usize) -> &T {
        &self.entries[number].value
    }
}

impl<T> IndexMut<usize> for Table<T> {
    fn index_mut(&mut self, number: usize) -> &mut T {
        &mut self.entries[number].value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_free_again_when_its_entry_is_forgotten() {
        let mut table = Table::<u32>::new();
        let (one, two): (Arc<str>, Arc<str>) = ("one".into(), "two".into());
        let (first, _) = table.number(&one);
        table[first] = 7;
        assert_eq!(table.number(&one), (first, false));
        table.forget(first);
        assert_eq!(table.find("one"), None);
        assert_eq!(table.numbers(), [0; 0]);
        let (second, _) = table.number(&two);
        assert_eq!((second, table[second]), (first, 0), "the number, not the value");
        assert_eq!(&*table.name(second), "two");
    }
}
