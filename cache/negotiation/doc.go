// Package negotiation finds which representations a client accepts and in which one an
// apiserver has answered, by the rules of an apiserver's content negotiation: Accept,
// Content-Type, and their parameter "as" for metadata only or a Table.
//
// All values are plain data; everything is safe for concurrent use.
package negotiation
